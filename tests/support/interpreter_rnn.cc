// Recurrent cells by their formulas (ir/ops/rnn.cc), a number at a time; the gradient by the chain
// rule for each gate. Units are those of all pixels: a convolution is a product with a kernel that
// is zero between pixels that are too far from each other.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "ir/ops/rnn.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

// Activations at x, and their derivatives where they are y.
struct Activation {
  double (*value)(double x);
  double (*slope)(double y);
};
constexpr double kScale = 1.0507009873554805, kAlpha = 1.6732632423543772;  // of selu

const std::map<std::string, Activation>& activations() {
  static const std::map<std::string, Activation> kTable = {
      {"tanh", {[](double x) { return std::tanh(x); }, [](double y) { return (1 - y) * (1 + y); }}},
      {"sigmoid",
       {[](double x) { return 1 / (1 + std::exp(-x)); }, [](double y) { return y - y * y; }}},
      {"relu",
       {[](double x) { return std::max(x, 0.0); }, [](double y) { return y > 0 ? 1.0 : 0.0; }}},
      {"linear", {[](double x) { return x; }, [](double) { return 1.0; }}},
      {"hard_sigmoid",
       {[](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); },
        [](double y) { return y > 0 && y < 1 ? 1 / 6.0 : 0.0; }}},
      {"relu6",
       {[](double x) { return std::clamp(x, 0.0, 6.0); },
        [](double y) { return y > 0 && y < 6 ? 1.0 : 0.0; }}},
      {"softplus",
       {[](double x) { return std::log1p(std::exp(x)); },
        [](double y) { return 1 - std::exp(-y); }}},
      {"softsign",
       {[](double x) { return x / (1 + std::abs(x)); },
        [](double y) { return (1 - std::abs(y)) * (1 - std::abs(y)); }}},
      {"elu",
       {[](double x) { return x > 0 ? x : std::expm1(x); },
        [](double y) { return y > 0 ? 1.0 : y + 1; }}},
      {"selu",
       {[](double x) { return kScale * (x > 0 ? x : kAlpha * std::expm1(x)); },
        [](double y) { return y > 0 ? kScale : y + kScale * kAlpha; }}},
      {"leaky_relu",
       {[](double x) { return x > 0 ? x : 0.2 * x; }, [](double y) { return y > 0 ? 1.0 : 0.2; }}},
      {"exponential", {[](double x) { return std::exp(x); }, [](double y) { return y; }}},
      {"hard_tanh",
       {[](double x) { return std::clamp(x, -1.0, 1.0); },
        [](double y) { return std::abs(y) < 1 ? 1.0 : 0.0; }}},
  };
  return kTable;
}
double activate(const std::string& name, double x) {
  return activations().at(name).value(x);
}
double slope(const std::string& name, double y) {
  return activations().at(name).slope(y);
}

class Scan {
 public:
  explicit Scan(const NodeRun& run)
      : at(run.node),
        batch(run.in[0]->shape()[0]),
        steps(run.in[0]->shape()[1]),
        units(run.in[2]->size() / batch),
        f(run.node.attr_string("activation")),
        s(run.node.attr_string("recurrent_activation")),
        of_pixel(run.in[2]->shape().back()),
        space(run.in[2]->shape().begin() + 1, run.in[2]->shape().end() - 1),
        run_(run) {}

  const RnnOperands at;
  const int64_t batch, steps, units;
  const std::string f, s;
  const int64_t of_pixel;  // units
  const Shape space;

  // The last coordinate counts the elements of all further dimensions.
  double in(int i, const std::vector<int64_t>& place) const {
    const HostTensor& tensor = *run_.in[static_cast<size_t>(i)];
    return tensor.at(index_in(place, tensor.shape()));
  }
  void set(int i, const std::vector<int64_t>& place, double value) const {
    HostTensor& tensor = run_.out[static_cast<size_t>(i)];
    tensor.set(index_in(place, tensor.shape()), value);
  }
  // Where unit j of a gate is among the columns of its pixel.
  int64_t column(int64_t gate, int64_t j) const {
    return (j / of_pixel * at.gates + gate) * of_pixel + j % of_pixel;
  }
  int64_t kept_column(int64_t gate, int64_t j) const {
    return (j / of_pixel * at.gate_columns + gate) * of_pixel + j % of_pixel;
  }
  bool is_valid(int64_t b, int64_t t) const { return at.mask < 0 || in(at.mask, {b, t}) != 0; }
  double kernel(int64_t from, int64_t gate, int64_t j) const {
    const Shape& shape = run_.in[static_cast<size_t>(at.kernel)]->shape();
    int64_t source = from / of_pixel, target = j / of_pixel;
    std::vector<int64_t> place(space.size());
    for (size_t d = space.size(); d-- > 0;) {
      place[d] = source % space[d] - target % space[d] + (shape[d] - 1) / 2;
      if (place[d] < 0 || place[d] >= shape[d])
        return 0;
      source /= space[d];
      target /= space[d];
    }
    place.insert(place.end(), {from % of_pixel, gate * of_pixel + j % of_pixel});
    return in(at.kernel, place);
  }
  double bias(int64_t gate, int64_t j) const {
    return at.bias < 0 ? 0 : in(at.bias, {gate * of_pixel + j % of_pixel});
  }
  double drop(int64_t b, int64_t gate, int64_t i) const {
    return at.drop < 0 ? 1 : in(at.drop, {b, column(gate, i)});
  }
  // Unit j of a gate's product with the state, and its bias.
  double product(int64_t b, const std::vector<double>& h, int64_t gate, int64_t j) const {
    double sum = bias(gate, j);
    for (int64_t i = 0; i < units; ++i)
      sum += h[static_cast<size_t>(i)] * drop(b, gate, i) * kernel(i, gate, j);
    return sum;
  }
  double x(int64_t b, int64_t t, int64_t gate, int64_t j) const {
    return in(at.x, {b, t, column(gate, j)});
  }

 private:
  static int64_t index_in(const std::vector<int64_t>& place, const Shape& shape) {
    Shape joined(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(place.size()));
    for (size_t d = place.size(); d < shape.size(); ++d)
      joined.back() *= shape[d];
    return index_of(place, joined);
  }

  const NodeRun& run_;
};

// A step of one batch item: sums before activations, and what the cell makes of them.
struct Step {
  std::vector<double> h, c, reset;          // before; reset: r h of the cell gru
  std::vector<std::array<double, 4>> sums;  // of each unit
  std::vector<double> content;              // of gru_reset_after: q_g + b_g
  std::vector<double> next_h, next_c;

  Step(const Scan& scan, int64_t b, int64_t t, std::vector<double> h_before,
       std::vector<double> c_before)
      : h(std::move(h_before)),
        c(std::move(c_before)),
        reset(h.size()),
        sums(h.size()),
        content(h.size()),
        next_h(h.size()),
        next_c(h.size()) {
    const auto n = static_cast<size_t>(scan.units);
    for (size_t j = 0; j < n; ++j) {
      const auto unit = static_cast<int64_t>(j);
      for (int64_t gate = 0; gate < (scan.at.is_gru ? 2 : scan.at.gates); ++gate)
        sums[j][static_cast<size_t>(gate)] =
            scan.x(b, t, gate, unit) + scan.product(b, h, gate, unit);
    }
    for (size_t j = 0; scan.at.is_gru && j < n; ++j)
      reset[j] = activate(scan.s, sums[j][1]) * h[j];
    for (size_t j = 0; j < n; ++j)
      finish(scan, b, t, j);
  }

  // What the gradient reads: gates after their activations, and the content of gru_reset_after.
  void keep(const Scan& scan, int64_t b, int64_t t) const {
    for (size_t j = 0; scan.at.kept >= 0 && j < sums.size(); ++j) {
      for (int64_t gate = 0; gate < scan.at.gates; ++gate)
        scan.set(scan.at.kept, {b, t, scan.kept_column(gate, static_cast<int64_t>(j))},
                 activate(gate == 2 ? scan.f : scan.s, sums[j][static_cast<size_t>(gate)]));
      if (scan.at.is_reset_after)
        scan.set(scan.at.kept, {b, t, scan.kept_column(3, static_cast<int64_t>(j))}, content[j]);
    }
  }

 private:
  void finish(const Scan& scan, int64_t b, int64_t t, size_t j) {
    const auto unit = static_cast<int64_t>(j);
    auto& sum = sums[j];
    if (scan.at.is_lstm) {
      next_c[j] =
          activate(scan.s, sum[1]) * c[j] + activate(scan.s, sum[0]) * activate(scan.f, sum[2]);
      next_h[j] = activate(scan.s, sum[3]) * activate(scan.f, next_c[j]);
      return;
    }
    if (!scan.at.is_gru) {
      next_h[j] = activate(scan.f, sum[0]);
      return;
    }
    content[j] = scan.product(b, scan.at.is_reset_after ? h : reset, 2, unit);
    sum[2] = scan.x(b, t, 2, unit) +
             (scan.at.is_reset_after ? activate(scan.s, sum[1]) * content[j] : content[j]);
    const double z = activate(scan.s, sum[0]);
    next_h[j] = z * h[j] + (1 - z) * activate(scan.f, sum[2]);
  }
};

std::vector<double> row_of(const Scan& scan, int operand, int64_t b) {
  std::vector<double> out(static_cast<size_t>(scan.units), 0.0);
  for (int64_t j = 0; operand >= 0 && j < scan.units; ++j)
    out[static_cast<size_t>(j)] = scan.in(operand, {b, j});
  return out;
}
std::vector<double> row_of(const Scan& scan, int operand, int64_t b, int64_t t) {
  std::vector<double> out(static_cast<size_t>(scan.units), 0.0);
  for (int64_t j = 0; operand >= 0 && j < scan.units; ++j)
    out[static_cast<size_t>(j)] = scan.in(operand, {b, t, j});
  return out;
}

void scan_rnn(const NodeRun& run) {
  const Scan scan(run);
  for (int64_t b = 0; b < scan.batch; ++b) {
    std::vector<double> h = row_of(scan, scan.at.h0, b), c = row_of(scan, scan.at.c0, b);
    for (int64_t t = 0; t < scan.steps; ++t) {
      for (int64_t j = 0; scan.at.kept >= 0 && j < scan.at.gate_columns * scan.units; ++j)
        scan.set(scan.at.kept, {b, t, j}, 0);
      if (scan.is_valid(b, t)) {
        const Step step(scan, b, t, h, c);
        step.keep(scan, b, t);
        h = step.next_h;
        c = step.next_c;
      }
      for (int64_t j = 0; j < scan.units; ++j) {
        scan.set(0, {b, t, j}, h[static_cast<size_t>(j)]);
        if (scan.at.is_lstm)
          scan.set(1, {b, t, j}, c[static_cast<size_t>(j)]);
      }
    }
  }
}

// Cotangents of the state before a step from those behind it; sets dx and extra.
void step_gradient(const Scan& scan, int64_t b, int64_t t, std::vector<double>& dh,
                   std::vector<double>& dc) {
  const bool first = t == 0;
  const std::vector<double> h_before =
      first ? row_of(scan, scan.at.h0, b) : row_of(scan, scan.at.h, b, t - 1);
  const std::vector<double> c_before =
      first ? row_of(scan, scan.at.c0, b) : row_of(scan, scan.at.c, b, t - 1);
  const std::vector<double> c_after = row_of(scan, scan.at.c, b, t);
  const auto n = static_cast<size_t>(scan.units);
  const auto gate = [&](int64_t which, size_t j) {
    return scan.in(scan.at.x, {b, t, scan.kept_column(which, static_cast<int64_t>(j))});
  };
  std::vector<double> before(n, 0.0), dreset(n, 0.0);
  std::vector<std::array<double, 4>> dsum(n), dproduct(n);  // of x, and of products
  const std::string &f = scan.f, &s = scan.s;
  for (size_t j = 0; j < n; ++j) {
    if (scan.at.is_lstm) {
      const double i = gate(0, j), forget = gate(1, j), g = gate(2, j), o = gate(3, j);
      const double y = activate(f, c_after[j]);
      const double d = dc[j] + dh[j] * o * slope(f, y);
      dsum[j] = {d * g * slope(s, i), d * c_before[j] * slope(s, forget), d * i * slope(f, g),
                 dh[j] * y * slope(s, o)};
      dc[j] = d * forget;
    } else if (scan.at.is_gru) {
      const double z = gate(0, j), g = gate(2, j);
      dsum[j][0] = dh[j] * (h_before[j] - g) * slope(s, z);
      dsum[j][2] = dh[j] * (1 - z) * slope(f, g);
      before[j] = dh[j] * z;
    } else {
      dsum[j][0] = dh[j] * slope(f, gate(0, j));
    }
  }
  for (size_t j = 0; scan.at.is_gru && j < n; ++j) {
    const double r = gate(1, j);
    double dr = 0;
    if (scan.at.is_reset_after) {
      dr = dsum[j][2] * gate(3, j);
    } else {
      for (size_t k = 0; k < n; ++k)
        dreset[j] += dsum[k][2] * scan.drop(b, 2, static_cast<int64_t>(j)) *
                     scan.kernel(static_cast<int64_t>(j), 2, static_cast<int64_t>(k));
      dr = dreset[j] * h_before[j];
      before[j] += dreset[j] * r;
    }
    dsum[j][1] = dr * slope(s, r);
  }
  dproduct = dsum;
  for (size_t j = 0; scan.at.is_gru && j < n; ++j)
    dproduct[j][2] = scan.at.is_reset_after ? dsum[j][2] * gate(1, j) : 0.0;
  for (size_t i = 0; i < n; ++i) {
    const auto unit = static_cast<int64_t>(i);
    for (int64_t k = 0; k < scan.at.gates; ++k) {
      const auto of_gate = static_cast<size_t>(k);
      for (size_t j = 0; j < n; ++j)
        before[i] += dproduct[j][of_gate] * scan.drop(b, k, unit) *
                     scan.kernel(unit, k, static_cast<int64_t>(j));
      scan.set(0, {b, t, scan.column(k, unit)}, dsum[i][of_gate]);
      if (scan.at.is_reset_after)
        scan.set(scan.at.extra, {b, t, scan.column(k, unit)}, dproduct[i][of_gate]);
    }
    if (scan.at.is_gru && !scan.at.is_reset_after)
      scan.set(scan.at.extra, {b, t, unit}, gate(1, i) * h_before[i] * scan.drop(b, 2, unit));
  }
  dh = before;
}

void scan_rnn_grad(const NodeRun& run) {
  const Scan scan(run);
  const auto n = static_cast<size_t>(scan.units);
  for (int64_t b = 0; b < scan.batch; ++b) {
    std::vector<double> dh(n, 0.0), dc(n, 0.0);
    for (int64_t t = scan.steps - 1; t >= 0; --t) {
      const std::vector<double> more_h = row_of(scan, scan.at.dh, b, t);
      const std::vector<double> more_c = row_of(scan, scan.at.dc, b, t);
      for (size_t j = 0; j < n; ++j) {
        dh[j] += more_h[j];
        dc[j] += more_c[j];
      }
      if (scan.is_valid(b, t))
        step_gradient(scan, b, t, dh, dc);
    }
    for (size_t j = 0; j < n; ++j) {
      const auto unit = static_cast<int64_t>(j);
      scan.set(scan.at.dh0, {b, unit}, dh[j]);
      if (scan.at.is_lstm)
        scan.set(scan.at.dc0, {b, unit}, dc[j]);
    }
  }
}

}  // namespace

void add_rnn_kernels(KernelTable& table) {
  table["scan_rnn"] = scan_rnn;
  table["scan_rnn_grad"] = scan_rnn_grad;
}

}  // namespace meshtrain
