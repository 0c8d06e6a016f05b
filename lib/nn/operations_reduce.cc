// Reductions over axes. Source: Keras 3.15 ops/numpy.py, ops/math.py, ops/linalg.py.
#include <cmath>

#include "nn/graph_parts.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;
using Axes = std::vector<int64_t>;

struct Reduced {
  ValueId x;
  Axes axes;
  bool keepdims;
};

Reduced reduced(Context& c, ValueId x) {
  return {x, c.axes("axis", c.b.shape(x).size()), c.boolean("keepdims")};
}

Reduced reduced_float(Context& c) {
  return reduced(c, c.floating(0));
}

// Integers as wide as NumPy sums them in; bool as int32.
ValueId summed_number(Context& c) {
  const ValueId x = c.tensor(0);
  const DType dtype = c.b.dtype(x);
  return is_floating(dtype) || dtype_size(dtype) >= 4 ? x : c.b.cast(x, DType::kInt32);
}

Reduced reduced_number(Context& c) {
  return reduced(c, summed_number(c));
}

ValueId sum_of(Context& c) {
  const Reduced r = reduced_number(c);
  return c.b.reduce_sum(r.x, r.axes, r.keepdims);
}

ValueId mean_of_axes(Context& c) {
  const Reduced r = reduced_float(c);
  return c.b.reduce_mean(r.x, r.axes, r.keepdims);
}

template <bool largest>
ValueId extremum(Context& c) {
  const Reduced r = reduced_number(c);
  return largest ? c.b.reduce_max(r.x, r.axes, r.keepdims)
                 : c.b.reduce_min(r.x, r.axes, r.keepdims);
}

ValueId variance_over(Context& c) {
  const Reduced r = reduced_float(c);
  const ValueId centred = c.b.sub(r.x, c.b.reduce_mean(r.x, r.axes, true));
  return c.b.reduce_mean(c.b.square(centred), r.axes, r.keepdims);
}

ValueId deviation_over(Context& c) {
  return c.b.sqrt(variance_over(c));
}

ValueId logsumexp(Context& c) {
  const Reduced r = reduced_float(c);
  const ValueId top = c.b.reduce_max(r.x, r.axes, true);
  const ValueId sum = c.b.reduce_sum(c.b.exp(c.b.sub(r.x, top)), r.axes, true);
  const ValueId out = c.b.add(c.b.log(sum), top);
  return r.keepdims ? out : c.b.reduce_sum(out, r.axes);  // of one element each
}

// The product of the halves, until one is left.
ValueId product_along(Builder& b, ValueId x, int axis) {
  while (b.shape(x)[static_cast<size_t>(axis)] > 1) {
    const int64_t size = b.shape(x)[static_cast<size_t>(axis)], half = size / 2;
    const ValueId product = b.mul(b.slice(x, axis, 0, half), b.slice(x, axis, half, 2 * half));
    x = size % 2 == 0 ? product : b.concat({product, b.slice(x, axis, size - 1, size)}, axis);
  }
  return x;
}

ValueId product_of(Context& c) {
  const Reduced r = reduced_number(c);
  ValueId out = r.x;
  for (const int64_t axis : r.axes) {
    out = product_along(c.b, out, static_cast<int>(axis));
  }
  return r.keepdims ? out : c.b.reduce_sum(out, r.axes);
}

template <bool all>
ValueId all_or_any(Context& c) {
  const ValueId x = c.tensor(0);
  const ValueId holds =
      c.b.dtype(x) == DType::kBool ? x : c.b.binary("ne", x, c.b.constant(0, c.b.dtype(x)));
  const Reduced r = reduced(c, c.b.cast(holds, DType::kInt32));
  return c.b.cast(
      all ? c.b.reduce_min(r.x, r.axes, r.keepdims) : c.b.reduce_max(r.x, r.axes, r.keepdims),
      DType::kBool);
}

template <bool largest>
ValueId place_of_extremum(Context& c) {
  ValueId x = c.floating(0);
  x = largest ? x : c.b.neg(x);
  if (c.is_null("axis")) {
    operation_error("`axis` must be given", "such as axis=-1");
  }
  const auto axis = static_cast<int>(c.axis("axis", c.b.shape(x).size()));
  const ValueId out = c.b.argmax(x, axis);
  return c.boolean("keepdims") ? c.b.expand_dims(out, axis) : out;
}

ValueId count_nonzero(Context& c) {
  const ValueId x = c.tensor(0);
  const ValueId holds = c.b.binary("ne", x, constant_like(c.b, x, 0));
  return c.b.reduce_sum(c.b.cast(holds, DType::kInt32), c.axes("axis", c.b.shape(x).size()));
}

// The mean; weights are not taken.
ValueId average(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.reduce_mean(x, c.axes("axis", c.b.shape(x).size()));
}

ValueId norm(Context& c) {
  const Reduced r = reduced_float(c);
  const double order = c.is_null("ord") ? 2 : c.number("ord");
  if (order == 2 && (c.is_null("ord") || r.axes.size() == 1)) {
    return c.b.sqrt(c.b.reduce_sum(c.b.square(r.x), r.axes, r.keepdims));
  }
  if (order != 1 || r.axes.size() != 1) {
    operation_error("`ord` must be 1 or 2 along one axis, or null");
  }
  return c.b.reduce_sum(c.b.unary("abs", r.x), r.axes, r.keepdims);
}

ValueId normalize(Context& c) {
  if (c.number("order") != 2) {
    operation_error("`order` must be 2", "for others divide by norm(x, ord=..., keepdims=True)");
  }
  const ValueId x = c.floating(0);
  return l2_normalized(c.b, x, c.axis("axis", c.b.shape(x).size()));
}

// The `k` largest along the last axis, in order: their values and places.
ValueId top_k(Context& c) {
  const ValueId x = c.tensor(0);
  const Shape& shape = c.b.shape(x);
  const int64_t k = c.integer("k");
  if (shape.empty() || k < 1 || k > shape.back() || c.part < -2 || c.part > 1) {
    operation_error(
        fmt::format("`k` is {}, not from 1 to the size of the last axis, or a part "
                    "beside 0, the values, and 1, their places",
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

ValueId running_sum(Context& c) {
  const ValueId x = summed_number(c);
  if (c.is_null("axis")) {
    operation_error("`axis` must be given", "such as axis=-1");
  }
  return c.b.cumsum(x, static_cast<int>(c.axis("axis", c.b.shape(x).size())));
}

}  // namespace

std::vector<Operation> reduction_operations() {
  constexpr std::string_view kArguments = "axis=None, keepdims=False";
  return {
      {"sum", "Sum", "numpy", "x", kArguments, sum_of},
      {"mean", "Mean", "numpy", "x", kArguments, mean_of_axes},
      {"max", "Max", "numpy", "x", kArguments, extremum<true>},
      {"min", "Min", "numpy", "x", kArguments, extremum<false>},
      {"amax", "Amax", "numpy", "x", kArguments, extremum<true>},
      {"amin", "Amin", "numpy", "x", kArguments, extremum<false>},
      {"var", "Var", "numpy", "x", kArguments, variance_over},
      {"std", "Std", "numpy", "x", kArguments, deviation_over},
      {"prod", "Prod", "numpy", "x", kArguments, product_of},
      {"all", "All", "numpy", "x", kArguments, all_or_any<true>},
      {"any", "Any", "numpy", "x", kArguments, all_or_any<false>},
      {"logsumexp", "Logsumexp", "math", "x", kArguments, logsumexp},
      {"argmax", "Argmax", "numpy", "x", kArguments, place_of_extremum<true>},
      {"argmin", "Argmin", "numpy", "x", kArguments, place_of_extremum<false>},
      {"norm", "Norm", "linalg", "x", "ord=None, axis=None, keepdims=False", norm},
      {"normalize", "Normalize", "nn", "x", "axis=-1, order=2", normalize},
      {"count_nonzero", "CountNonzero", "numpy", "x", "axis=None", count_nonzero},
      {"average", "Average", "numpy", "x", "axis=None", average},
      {"top_k", "TopK", "math", "x", "k, sorted=True", top_k, true},
      {"sort", "Sort", "numpy", "x", "axis=-1", sorted<0>},
      {"argsort", "Argsort", "numpy", "x", "axis=-1", sorted<1>},
      {"cumsum", "Cumsum", "numpy", "x", "axis=None", running_sum},
  };
}

}  // namespace meshtrain
