// Head and loss by their formulas (ir/ops/linear_cross_entropy.cc): all logits of a token at once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

// The logits of a token's classes on this shard, and its id among them.
class Head {
 public:
  explicit Head(const NodeRun& run)
      : run_(run),
        x_(*run.in[0]),
        table_(*run.in[1]),
        class_dim_(run.node.attr_int("transposed") != 0 ? 1 : 0) {}

  int64_t tokens() const { return run_.in[2]->size(); }
  int64_t features() const { return x_.shape().back(); }
  int64_t classes() const { return table_.shape()[class_dim_]; }
  bool is_class(int64_t i) const { return id(i) >= 0 && id(i) < all_classes(); }
  // Without the zeros that fill up the table.
  int64_t all_classes() const {
    return run_.node.has_attr("classes") ? run_.node.attr_int("classes")
                                         : run_.in_shards[1].global_shape[class_dim_];
  }
  int64_t id(int64_t i) const { return static_cast<int64_t>(run_.in[2]->at(i)); }
  // Of this shard; not in [0, classes()) where the id is elsewhere.
  int64_t local_id(int64_t i) const { return id(i) - run_.in_shards[1].start[class_dim_]; }
  int64_t x_index(int64_t i, int64_t e) const { return i * features() + e; }
  int64_t table_index(int64_t v, int64_t e) const {
    return class_dim_ == 0 ? v * features() + e : e * classes() + v;
  }
  std::vector<double> logits(int64_t i) const {
    std::vector<double> out(static_cast<size_t>(classes()));
    for (int64_t v = 0; v < classes(); ++v) {
      for (int64_t e = 0; e < features(); ++e) {
        out[static_cast<size_t>(v)] += x_.at(x_index(i, e)) * table_.at(table_index(v, e));
      }
      if (v + run_.in_shards[1].start[class_dim_] >= all_classes())
        out[static_cast<size_t>(v)] = -std::numeric_limits<double>::infinity();
    }
    return out;
  }
  double x(int64_t i, int64_t e) const { return x_.at(x_index(i, e)); }
  double table(int64_t v, int64_t e) const { return table_.at(table_index(v, e)); }

 private:
  const NodeRun& run_;
  const HostTensor &x_, &table_;
  size_t class_dim_;
};

double log_sum(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
  }
  return largest + std::log(sum);
}

void add_loss_and_hits(const NodeRun& run) {
  const Head head(run);
  for (int64_t i = 0; i < head.tokens(); ++i) {
    const std::vector<double> logits = head.logits(i);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    run.out[0].set(
        i, head.is_class(i) ? log_sum(logits) - logits[static_cast<size_t>(head.id(i))] : 0);
    run.out[1].set(i, best == head.id(i) ? 1 : 0);
  }
}

// Of the sum over tokens of weight(i) loss(i); lse(i, logits) is of all shards.
template <class LogSum>
void add_gradients(const NodeRun& run, HostTensor& dx, HostTensor& dtable, const LogSum& lse) {
  const Head head(run);
  std::vector<double> of_x(static_cast<size_t>(dx.size())),
      of_table(static_cast<size_t>(dtable.size()));
  for (int64_t i = 0; i < head.tokens(); ++i) {
    if (!head.is_class(i)) {
      continue;
    }
    const std::vector<double> logits = head.logits(i);
    const double all = lse(i, logits);
    for (int64_t v = 0; v < head.classes(); ++v) {
      const double p = std::exp(logits[static_cast<size_t>(v)] - all);
      const double g = run.in[3]->at(i) * (p - (v == head.local_id(i) ? 1 : 0));
      for (int64_t e = 0; e < head.features(); ++e) {
        of_x[static_cast<size_t>(head.x_index(i, e))] += g * head.table(v, e);
        of_table[static_cast<size_t>(head.table_index(v, e))] += g * head.x(i, e);
      }
    }
  }
  for (int64_t i = 0; i < dx.size(); ++i) {
    dx.set(i, of_x[static_cast<size_t>(i)]);
  }
  for (int64_t i = 0; i < dtable.size(); ++i) {
    dtable.set(i, of_table[static_cast<size_t>(i)]);
  }
}

void linear_cross_entropy_grad(const NodeRun& run) {
  add_loss_and_hits(run);
  add_gradients(run, run.out[2], run.out[3],
                [](int64_t, const std::vector<double>& logits) { return log_sum(logits); });
}

void linear_cross_entropy_parts(const NodeRun& run) {
  const Head head(run);
  const int64_t tokens = head.tokens(), blocks = run.out[0].shape()[0],
                size = head.classes() / blocks;
  for (int64_t i = 0; i < tokens; ++i) {
    const std::vector<double> logits = head.logits(i);
    for (int64_t b = 0; b < blocks; ++b) {
      const auto begin = logits.begin() + b * size, end = begin + size;
      const auto best = std::max_element(begin, end);
      const int64_t id = head.local_id(i) - b * size, at = b * tokens + i;
      const bool is_here = head.is_class(i) && id >= 0 && id < size;
      double sum = 0;
      for (auto logit = begin; logit != end; ++logit) {
        sum += std::isinf(*logit) ? 0 : std::exp(*logit - *best);
      }
      run.out[0].set(at, *best);
      run.out[1].set(at, sum);
      run.out[2].set(at, is_here ? begin[id] : 0);
      run.out[3].set(at, is_here ? (best - begin == id ? 1 : 0) : id >= size ? -1 : 0);
    }
  }
}

void linear_cross_entropy_parts_grad(const NodeRun& run) {
  add_gradients(run, run.out[0], run.out[1],
                [&](int64_t i, const std::vector<double>&) { return run.in[4]->at(i); });
}

}  // namespace

void add_head_kernels(KernelTable& table) {
  table["linear_cross_entropy"] = add_loss_and_hits;
  table["linear_cross_entropy_grad"] = linear_cross_entropy_grad;
  table["linear_cross_entropy_parts"] = linear_cross_entropy_parts;
  table["linear_cross_entropy_parts_grad"] = linear_cross_entropy_parts_grad;
}

}  // namespace meshtrain
