// Attention by its formulas (ir/ops/attention.cc): all scores of a row, one after the other.
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "ir/ops/attention.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

using Operand = AttentionOperand;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

class Attention {
 public:
  Attention(const NodeRun& run, size_t num_inputs)
      : run_(run),
        at_(run.node.attr_string("operands"), num_inputs),
        q_(*run.in[0]),
        k_(*run.in[1]),
        v_(*run.in[2]),
        global_(run.in_shards[0].global_shape),
        start_(run.in_shards[0].start),
        readers_(q_.shape()[2] / k_.shape()[2]) {}

  int64_t batch() const { return q_.shape()[0]; }
  int64_t queries() const { return q_.shape()[1]; }
  int64_t heads() const { return q_.shape()[2]; }
  int64_t keys() const { return k_.shape()[1]; }
  int64_t head_size() const { return q_.shape()[3]; }
  int64_t value_size() const { return v_.shape()[3]; }
  int64_t key_head(int64_t h) const { return h / readers_; }
  double scale() const { return run_.node.attr_double("scale"); }

  double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!is_allowed(b, h, i, j)) {
      return kMinusInfinity;
    }
    double sum = 0;
    for (int64_t d = 0; d < head_size(); ++d) {
      sum += q_.at(index_of({b, i, h, d}, q_.shape())) *
             k_.at(index_of({b, j, key_head(h), d}, k_.shape()));
    }
    return sum * scale();
  }

  // What dropout multiplies P with: 0 or 1 / (1 - rate).
  double kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const double rate = run_.node.attr_double("rate");
    if (rate == 0) {
      return 1;
    }
    const int64_t row = ((b + start_[0]) * global_[2] + h + start_[2]) * global_[1] + i + start_[1];
    const auto step = static_cast<int64_t>(run_.in[at(Operand::kStep)]->at(0));
    const uint32_t bits =
        philox_bits(static_cast<uint64_t>(run_.node.attr_int("seed")),
                    static_cast<uint32_t>(run_.node.attr_int("stream")),
                    static_cast<uint32_t>(step), static_cast<uint64_t>(row * keys() + j));
    return bits < philox_threshold(rate) ? 0 : 1 / (1 - rate);
  }

  bool has(Operand operand) const { return at_[operand] >= 0; }
  const HostTensor& operand(Operand operand) const { return *run_.in[at(operand)]; }

 private:
  size_t at(Operand operand) const { return static_cast<size_t>(at_[operand]); }
  // Of an operand over queries or keys.
  double element(Operand operand, int64_t b, int64_t i) const {
    const HostTensor& tensor = this->operand(operand);
    return tensor.at(b * tensor.shape()[1] + i);
  }
  bool is_allowed(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if ((has(Operand::kQueryMask) && element(Operand::kQueryMask, b, i) == 0) ||
        (has(Operand::kKeyMask) && element(Operand::kKeyMask, b, j) == 0) ||
        (has(Operand::kQuerySegments) &&
         element(Operand::kQuerySegments, b, i) != element(Operand::kKeySegments, b, j))) {
      return false;
    }
    if (has(Operand::kMask)) {
      const HostTensor& mask = operand(Operand::kMask);
      const Shape& shape = mask.shape();
      if (mask.at(index_of({shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, i, j}, shape)) == 0) {
        return false;
      }
    }
    const bool is_given = has(Operand::kQueryPositions);
    const double query =
        is_given ? element(Operand::kQueryPositions, b, i) : static_cast<double>(i + start_[1]);
    const double key = is_given ? element(Operand::kKeyPositions, b, j) : static_cast<double>(j);
    const auto window = static_cast<double>(run_.node.attr_int("window"));
    return (run_.node.attr_int("causal") == 0 || query >= key) &&
           (window == 0 || std::abs(query - key) < window);
  }

  const NodeRun& run_;
  AttentionOperands at_;
  const HostTensor &q_, &k_, &v_;
  const Shape& global_;
  const std::vector<int64_t>& start_;
  int64_t readers_;
};

void attention(const NodeRun& run) {
  const Attention a(run, kAttentionInputs);
  HostTensor &o = run.out[0], &lse = run.out[1];
  const HostTensor& v = *run.in[2];
  for (Coordinates at(lse.shape()); !at.done(); at.next()) {
    const int64_t b = at[0], h = at[1], i = at[2];
    double largest = kMinusInfinity, sum = 0;
    for (int64_t j = 0; j < a.keys(); ++j) {
      largest = std::max(largest, a.score(b, h, i, j));
    }
    std::vector<double> result(static_cast<size_t>(a.value_size()));
    for (int64_t j = 0; j < a.keys() && largest != kMinusInfinity; ++j) {
      const double p = std::exp(a.score(b, h, i, j) - largest), kept = a.kept(b, h, i, j);
      sum += p;
      for (int64_t e = 0; e < a.value_size(); ++e) {
        result[static_cast<size_t>(e)] +=
            p * kept * v.at(index_of({b, j, a.key_head(h), e}, v.shape()));
      }
    }
    lse.set(index_of(at.all(), lse.shape()), largest + std::log(sum));
    for (int64_t e = 0; e < a.value_size(); ++e) {
      o.set(index_of({b, i, h, e}, o.shape()), sum == 0 ? 0 : result[static_cast<size_t>(e)] / sum);
    }
  }
}

// A result that is added up before it is rounded.
struct Sums {
  explicit Sums(HostTensor& tensor_)
      : tensor(tensor_), values(static_cast<size_t>(tensor_.size()), 0.0) {}
  void add(const std::vector<int64_t>& at, double value) {
    values[static_cast<size_t>(index_of(at, tensor.shape()))] += value;
  }
  void store() {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set(i, values[static_cast<size_t>(i)]);
    }
  }

  HostTensor& tensor;
  std::vector<double> values;
};

void attention_grad(const NodeRun& run) {
  const Attention a(run, kAttentionGradInputs);
  const HostTensor &q = *run.in[0], &k = *run.in[1], &v = *run.in[2], &o = *run.in[3],
                   &lse = *run.in[4], &cotangent = *run.in[5];
  Sums dq(run.out[0]), dk(run.out[1]), dv(run.out[2]);
  for (Coordinates at(lse.shape()); !at.done(); at.next()) {
    const int64_t b = at[0], h = at[1], i = at[2], g = a.key_head(h);
    const double row_lse = lse.at(index_of(at.all(), lse.shape()));
    if (row_lse == kMinusInfinity) {
      continue;
    }
    double delta = a.has(Operand::kLseCotangent)
                       ? -a.operand(Operand::kLseCotangent).at(index_of(at.all(), lse.shape()))
                       : 0;
    for (int64_t e = 0; e < a.value_size(); ++e) {
      const int64_t place = index_of({b, i, h, e}, o.shape());
      delta += o.at(place) * cotangent.at(place);
    }
    for (int64_t j = 0; j < a.keys(); ++j) {
      const double p = std::exp(a.score(b, h, i, j) - row_lse), kept = a.kept(b, h, i, j);
      double dp = 0;
      for (int64_t e = 0; e < a.value_size(); ++e) {
        const double g_o = cotangent.at(index_of({b, i, h, e}, o.shape()));
        dp += g_o * kept * v.at(index_of({b, j, g, e}, v.shape()));
        dv.add({b, j, g, e}, p * kept * g_o);
      }
      const double ds = p * (dp - delta) * a.scale();
      for (int64_t d = 0; d < a.head_size(); ++d) {
        dq.add({b, i, h, d}, ds * k.at(index_of({b, j, g, d}, k.shape())));
        dk.add({b, j, g, d}, ds * q.at(index_of({b, i, h, d}, q.shape())));
      }
    }
  }
  dq.store();
  dk.store();
  dv.store();
}

void rotary(const NodeRun& run) {
  const HostTensor &x = *run.in[0], &cosine = *run.in[1], &sine = *run.in[2];
  const int64_t half = x.shape()[3] / 2;
  const double sign = run.node.attr_int("inverse") != 0 ? -1 : 1;
  int64_t index = 0;
  for (Coordinates at(x.shape()); !at.done(); at.next(), ++index) {
    const int64_t i = at[3] % half;
    const int64_t angle = index_of({cosine.shape()[0] == 1 ? 0 : at[0], at[1], i}, cosine.shape());
    const double other = at[3] < half ? -x.at(index + half) : x.at(index - half);
    run.out[0].set(index, x.at(index) * cosine.at(angle) + sign * other * sine.at(angle));
  }
}

}  // namespace

void add_attention_kernels(KernelTable& table) {
  table["attention"] = attention;
  table["attention_grad"] = attention_grad;
  table["rotary"] = rotary;
}

}  // namespace meshtrain
