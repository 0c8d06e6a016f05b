// Operations that sort, and that take elements by their place in an order or by indices. Source:
// Keras 3.15 ops/numpy.py, ops/math.py.
#include <algorithm>
#include <cmath>

#include "nn/graph_parts.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

// The `k` largest along the last axis, in order: their values and places.
ValueId top_k(Context& c) {
  const ValueId x = c.tensor(0);
  const Shape& shape = c.b.shape(x);
  const int64_t k = c.integer("k");
  if (shape.empty() || k < 1 || k > shape.back() || c.part < -2 || c.part > 1) {
    operation_error(
        fmt::format("`k` is {}, not from 1 to the size of the last axis, or a part "
                    "other than 0, the values, and 1, their places",
                    k));
  }
  return c.b.top_k(x, k)[static_cast<size_t>((c.part + 2) % 2)];
}

// Values (0) or places (1) from the smallest up.
template <size_t result>
ValueId sorted(Context& c) {
  ValueId x = c.floating(0);
  if (c.is_null("axis")) {
    operation_error("`axis` must be given", "such as axis=-1");
  }
  const size_t rank = c.b.shape(x).size(), axis = static_cast<size_t>(c.axis("axis", rank));
  x = c.b.neg(move_axis(c.b, x, axis, rank - 1));
  const ValueId out = c.b.top_k(x, c.b.shape(x).back())[result];
  return move_axis(c.b, result == 0 ? c.b.neg(out) : out, rank - 1, axis);
}

// --- quantiles -----------------------------------------------------------------------------------

// The axes of x as one, the last, which ascends.
struct Ascending {
  ValueId x;
  Shape kept;  // the result's shape with a 1 for each of the axes
};

Ascending ascending(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.floating(0);
  Shape kept = b.shape(x), outer;
  const std::vector<int64_t> axes = c.axes("axis", kept.size());
  std::vector<int64_t> order;
  int64_t count = 1;
  for (size_t d = 0; d < kept.size(); ++d) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) {
      order.push_back(static_cast<int64_t>(d));
      outer.push_back(kept[d]);
    }
  }
  for (const int64_t axis : axes) {
    order.push_back(axis);
    count *= kept[static_cast<size_t>(axis)];
    kept[static_cast<size_t>(axis)] = 1;
  }
  outer.push_back(count);
  const ValueId flat = b.reshape(b.transpose(x, order), outer);
  return {b.neg(b.top_k(b.neg(flat), count)[0]), kept};
}

// What lies at the part q of the way from the smallest to the largest, as `method` says between two
// elements.
ValueId at_part(Context& c, const Ascending& sorted, double q, const std::string& method) {
  Builder& b = c.b;
  if (!(q >= 0 && q <= 1)) {
    operation_error(fmt::format("a quantile of {} is not in [0, 1]", q));
  }
  const int64_t size = b.shape(sorted.x).back();
  const int last = static_cast<int>(c.rank(sorted.x)) - 1;
  const double place = q * static_cast<double>(size - 1);
  const auto low = static_cast<int64_t>(std::floor(place));
  const auto high = std::min(low + 1, size - 1);
  const auto at = [&](int64_t i) { return b.slice(sorted.x, last, i, i + 1); };
  const double part = place - static_cast<double>(low);
  ValueId out = kNone;
  if (method == "lower" || part == 0) {
    out = at(low);
  } else if (method == "higher") {
    out = at(high);
  } else if (method == "nearest") {
    out = at(part > 0.5 ? high : low);  // of two as near the lower one, as on JAX
  } else if (method == "midpoint") {
    out = b.mul(b.add(at(low), at(high)), 0.5);
  } else if (method == "linear") {
    out = b.add(b.mul(at(low), 1 - part), b.mul(at(high), part));
  } else {
    operation_error("`method` must be linear, lower, higher, midpoint or nearest");
  }
  if (c.boolean("keepdims")) {
    return b.reshape(out, sorted.kept);
  }
  return b.squeeze(out, last);
}

// `q`: one number, or several, for which a first dimension is added. `whole`: what stands for 1.
template <int whole>
ValueId quantile(Context& c) {
  const std::string method = c.text("method");
  const std::vector<double> parts = c.numbers("q");
  const Ascending sorted = ascending(c);
  if (!std::holds_alternative<std::vector<ExprValue>>(c.arguments.at("q").data)) {
    return at_part(c, sorted, parts[0] / whole, method);
  }
  std::vector<ValueId> out;
  for (const double part : parts) {
    out.push_back(c.b.expand_dims(at_part(c, sorted, part / whole, method), 0));
  }
  if (out.empty()) {
    operation_error("`q` has no number");
  }
  return out.size() == 1 ? out[0] : c.b.concat(std::move(out), 0);
}

ValueId median(Context& c) {
  return at_part(c, ascending(c), 0.5, "linear");
}

// --- elements by index ---------------------------------------------------------------------------

// x at the indices along an axis; the other dimensions belong together, or broadcast. Indices below
// 0 count from the end; others outside take the nearest element.
ValueId take_along_axis(Context& c) {
  Builder& b = c.b;
  ValueId x = c.tensor(0), indices = b.cast(c.tensor(1, DType::kInt32), DType::kInt32);
  if (c.is_null("axis") || c.rank(x) != c.rank(indices)) {
    operation_error("`axis` must be given, and the indices have the dimensions of x");
  }
  const auto axis = static_cast<size_t>(c.axis_of(x));
  const size_t rank = c.rank(x);
  x = move_axis(b, x, axis, rank - 1);
  indices = move_axis(b, indices, axis, rank - 1);
  Shape rows = b.shape(x), own = b.shape(indices);
  const int64_t size = rows.back(), count = own.back();
  rows.back() = own.back() = 1;
  if (!can_broadcast(rows, own)) {
    operation_error(fmt::format("indices {} do not fit {} outside axis {}",
                                shape_string(b.shape(indices)), shape_string(b.shape(x)), axis));
  }
  Shape common = broadcast_shapes(rows, own), full = common;
  full.back() = size;
  x = b.reshape(b.broadcast_to(x, full), {num_elements(full)});
  full.back() = count;
  indices = b.broadcast_to(indices, full);
  const ValueId length = constant_like(b, indices, static_cast<double>(size));
  const ValueId is_below = b.binary("lt", indices, constant_like(b, indices, 0));
  ValueId place = b.select(is_below, b.add(indices, length), indices);
  place = b.minimum(b.maximum(place, 0.0), static_cast<double>(size - 1));
  // Rows of x lie one after the other.
  const Shape lines = {num_elements(common), 1};
  const ValueId start = b.mul(b.iota(lines, 0, DType::kInt32), static_cast<double>(size));
  const ValueId flat = b.add(b.reshape(place, {lines[0], count}), start);
  return move_axis(b, b.reshape(b.gather_rows(x, flat), full), rank - 1, axis);
}

}  // namespace

std::vector<Operation> order_operations() {
  constexpr std::string_view kQuantile = "q, axis=None, method='linear', keepdims=False";
  return {
      {"top_k", "TopK", "math", "x", "k, sorted=True", top_k, true},
      {"sort", "Sort", "numpy", "x", "axis=-1", sorted<0>},
      {"argsort", "Argsort", "numpy", "x", "axis=-1", sorted<1>},
      {"median", "Median", "numpy", "x", "axis=None, keepdims=False", median},
      {"quantile", "Quantile", "numpy", "x", kQuantile, quantile<1>},
      {"percentile", "Percentile", "numpy", "x", kQuantile, quantile<100>},
      {"take_along_axis", "TakeAlongAxis", "numpy", "x, indices", "axis=None", take_along_axis},
  };
}

}  // namespace meshtrain
