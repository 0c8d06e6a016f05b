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
  const ValueId most = c.b.reduce_max(r.x, r.axes, true);
  const ValueId top = c.b.select(c.b.unary("is_finite", most), most, constant_like(c.b, most, 0));
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

ValueId peak_to_peak(Context& c) {
  const Reduced r = reduced_number(c);
  return c.b.sub(c.b.reduce_max(r.x, r.axes, r.keepdims), c.b.reduce_min(r.x, r.axes, r.keepdims));
}

// --- reductions that leave NaN out ---------------------------------------------------------------

struct Numbered {
  Reduced r;          // NaN is `otherwise`
  ValueId is_number;  // bool, of x's shape
  ValueId count;      // how many are numbers, laid out as the result
};

Numbered without_nan(Context& c, double otherwise) {
  const Reduced r = reduced_float(c);
  const ValueId is_number = c.b.binary("eq", r.x, r.x);
  const ValueId x = c.b.select(is_number, r.x, constant_like(c.b, r.x, otherwise));
  const ValueId ones = c.b.cast(is_number, c.b.dtype(x));
  return {{x, r.axes, r.keepdims}, is_number, c.b.reduce_sum(ones, r.axes, r.keepdims)};
}

// NaN where there is no number.
ValueId nan_of_none(Context& c, const Numbered& n, ValueId result) {
  const ValueId is_none = c.b.binary("eq", n.count, constant_like(c.b, n.count, 0));
  return c.b.select(is_none, constant_like(c.b, result, NAN), result);
}

template <bool largest>
ValueId nan_extremum(Context& c) {
  const Numbered n = without_nan(c, largest ? -INFINITY : INFINITY);
  return nan_of_none(c, n,
                     largest ? c.b.reduce_max(n.r.x, n.r.axes, n.r.keepdims)
                             : c.b.reduce_min(n.r.x, n.r.axes, n.r.keepdims));
}

ValueId nan_sum(Context& c) {
  const Numbered n = without_nan(c, 0);
  return c.b.reduce_sum(n.r.x, n.r.axes, n.r.keepdims);
}

ValueId nan_mean(Context& c) {
  const Numbered n = without_nan(c, 0);
  const ValueId sum = c.b.reduce_sum(n.r.x, n.r.axes, n.r.keepdims);
  return nan_of_none(c, n, c.b.div(sum, c.b.maximum(n.count, 1.0)));
}

ValueId nan_variance(Context& c) {
  Builder& b = c.b;
  const Numbered n = without_nan(c, 0);
  const ValueId ones = b.cast(n.is_number, b.dtype(n.r.x));
  const ValueId count = b.maximum(b.reduce_sum(ones, n.r.axes, true), 1.0);
  const ValueId mean = b.div(b.reduce_sum(n.r.x, n.r.axes, true), count);
  const ValueId centred = b.mul(b.sub(n.r.x, mean), ones);
  const ValueId sum = b.reduce_sum(b.square(centred), n.r.axes, n.r.keepdims);
  return nan_of_none(c, n, b.div(sum, b.maximum(n.count, 1.0)));
}

ValueId nan_deviation(Context& c) {
  return c.b.sqrt(nan_variance(c));
}

// --- running sums and products -------------------------------------------------------------------

int running_axis(Context& c, ValueId x) {
  if (c.is_null("axis")) {
    operation_error("`axis` must be given", "such as axis=-1");
  }
  return c.axis_of(x);
}

// Each element times the one `step` before it, at steps that double.
ValueId running_product(Context& c) {
  ValueId x = summed_number(c);
  const int axis = running_axis(c, x);
  const int64_t size = c.b.shape(x)[static_cast<size_t>(axis)];
  for (int64_t step = 1; step < size; step *= 2) {
    const ValueId before = c.b.slice(x, axis, 0, size - step);
    x = c.b.mul(x, c.b.pad(before, axis, step, 0, 1));
  }
  return x;
}

ValueId running_sum(Context& c) {
  const ValueId x = summed_number(c);
  return c.b.cumsum(x, running_axis(c, x));
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
      {"cumsum", "Cumsum", "numpy", "x", "axis=None", running_sum},
      {"cumprod", "Cumprod", "numpy", "x", "axis=None", running_product},
      {"ptp", "Ptp", "numpy", "x", kArguments, peak_to_peak},
      {"nanmax", "Nanmax", "numpy", "x", kArguments, nan_extremum<true>},
      {"nanmin", "Nanmin", "numpy", "x", kArguments, nan_extremum<false>},
      {"nansum", "Nansum", "numpy", "x", kArguments, nan_sum},
      {"nanmean", "Nanmean", "numpy", "x", kArguments, nan_mean},
      {"nanvar", "Nanvar", "numpy", "x", kArguments, nan_variance},
      {"nanstd", "Nanstd", "numpy", "x", kArguments, nan_deviation},
  };
}

}  // namespace meshtrain
