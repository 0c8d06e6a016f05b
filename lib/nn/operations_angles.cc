// Inverse trigonometric functions, and further functions of numbers one by one. Source: Keras 3.15
// ops/numpy.py.
#include <cmath>
#include <numbers>

#include "nn/graph_parts.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

constexpr double kPi = std::numbers::pi;

ValueId below_zero(Builder& b, ValueId x) {
  return b.binary("lt", x, constant_like(b, x, 0));
}

ValueId with_sign_of(Builder& b, ValueId magnitude, ValueId x) {
  return b.select(below_zero(b, x), b.neg(magnitude), magnitude);
}

// The angle of t in [0, 1]. Halved twice, atan(t) = 2 atan(t / (1 + sqrt(1 + t^2))), it is at most
// pi / 16, where eleven terms of the Taylor series are exact in float64.
ValueId angle_of(Builder& b, ValueId t) {
  for (int i = 0; i < 2; ++i) {
    t = b.div(t, b.add(b.sqrt(b.add(b.square(t), 1.0)), 1.0));
  }
  const ValueId square = b.square(t);
  ValueId sum = constant_like(b, t, 1.0 / 21);
  for (int power = 19; power > 0; power -= 2) {
    sum = b.add(b.neg(b.mul(sum, square)), 1.0 / power);
  }
  return b.mul(b.mul(t, sum), 4.0);
}

}  // namespace

// The quotient is of the smaller by the larger.
ValueId full_angle(Builder& b, ValueId y, ValueId x) {
  const ValueId up = b.unary("abs", y), across = b.unary("abs", x);
  const ValueId is_steep = b.binary("gt", up, across);
  const ValueId large = b.select(is_steep, up, across), small = b.select(is_steep, across, up);
  const ValueId is_origin = b.binary("eq", large, constant_like(b, large, 0));
  const ValueId flat =
      angle_of(b, b.div(small, b.select(is_origin, constant_like(b, large, 1), large)));
  const ValueId angle = b.select(is_steep, b.add(b.neg(flat), kPi / 2), flat);
  return with_sign_of(b, b.select(below_zero(b, x), b.add(b.neg(angle), kPi), angle), y);
}

namespace {

ValueId arctan(Context& c) {
  const ValueId x = c.floating(0);
  return full_angle(c.b, x, constant_like(c.b, x, 1));
}

ValueId arctan2(Context& c) {
  const std::vector<ValueId> x = c.broadcast_floats();
  return full_angle(c.b, x[0], x[1]);
}

// sqrt(1 - x^2), as a product that is exact next to 1.
ValueId other_leg(Builder& b, ValueId x) {
  return b.sqrt(b.mul(one_minus(b, x), b.add(x, 1.0)));
}

ValueId arcsin(Context& c) {
  const ValueId x = c.floating(0);
  return full_angle(c.b, x, other_leg(c.b, x));
}

ValueId arccos(Context& c) {
  const ValueId x = c.floating(0);
  return full_angle(c.b, other_leg(c.b, x), x);
}

// A power of the absolute value, put right by one step of Newton.
ValueId cbrt(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.floating(0), is_zero = b.binary("eq", x, constant_like(b, x, 0));
  const ValueId size = b.select(is_zero, constant_like(b, x, 1), b.unary("abs", x));
  const ValueId root = b.exp(b.div(b.log(size), 3.0));
  const ValueId better = b.div(b.add(b.mul(root, 2.0), b.div(size, b.square(root))), 3.0);
  return b.select(is_zero, constant_like(b, x, 0), with_sign_of(b, better, x));
}

ValueId sinc(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.floating(0), is_zero = b.binary("eq", x, constant_like(b, x, 0));
  const ValueId angle = b.mul(b.select(is_zero, constant_like(b, x, 1), x), kPi);
  return b.select(is_zero, constant_like(b, x, 1), b.div(b.unary("sin", angle), angle));
}

// 0 below 0, 1 above it, the second number at 0.
ValueId heaviside(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId zero = constant_like(b, x[0], 0), one = constant_like(b, x[0], 1);
  const ValueId apart = b.select(b.binary("gt", x[0], zero), one, zero);
  return b.select(b.binary("eq", x[0], zero), x[1], apart);
}

// What is left of x after whole parts of y, with the sign of x.
ValueId fmod(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId size = b.unary("abs", x[0]), part = b.unary("abs", x[1]);
  const ValueId rest = b.sub(size, b.mul(b.unary("floor", b.div(size, part)), part));
  // A quotient that was rounded up leaves a rest below 0.
  const ValueId zero = constant_like(b, rest, 0);
  return with_sign_of(b, b.add(rest, b.select(below_zero(b, rest), part, zero)), x[0]);
}

// The larger or smaller, of a number and NaN the number.
template <bool largest>
ValueId number_of_both(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId both = largest ? b.maximum(x[0], x[1]) : b.minimum(x[0], x[1]);
  const ValueId second = b.select(b.binary("ne", x[0], x[0]), x[1], both);
  return b.select(b.binary("ne", x[1], x[1]), x[0], second);
}

template <bool above>
ValueId is_infinity(Context& c) {
  const ValueId x = c.floating(0);
  const ValueId limit = constant_like(c.b, x, above ? INFINITY : -INFINITY);
  return c.b.binary("eq", x, limit);
}

// |x - y| <= atol + rtol |y|; equal infinities are close.
ValueId isclose(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId bound = b.add(b.mul(b.unary("abs", x[1]), c.number("rtol")), c.number("atol"));
  const ValueId is_near = b.binary("le", b.unary("abs", b.sub(x[0], x[1])), bound);
  const ValueId is_finite = b.unary("is_finite", x[1]);
  ValueId out = b.binary("logical_or", b.binary("logical_and", is_near, is_finite),
                         b.binary("eq", x[0], x[1]));
  if (c.boolean("equal_nan")) {
    const ValueId nans =
        b.binary("logical_and", b.binary("ne", x[0], x[0]), b.binary("ne", x[1], x[1]));
    out = b.binary("logical_or", out, nans);
  }
  return out;
}

// log2(2^x + 2^y).
ValueId logaddexp2(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId most = b.maximum(x[0], x[1]);  // as in logaddexp
  const ValueId distance = b.mul(b.sub(b.minimum(x[0], x[1]), most), std::numbers::ln2);
  const ValueId more = b.mul(b.unary("log1p", b.exp(distance)), std::numbers::log2e);
  return b.add(most, more);
}

// 0 where the divisor is 0.
ValueId divide_by_any(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId is_zero = b.binary("eq", x[1], constant_like(b, x[1], 0));
  const ValueId quotient = b.div(x[0], b.select(is_zero, constant_like(b, x[1], 1), x[1]));
  return b.select(is_zero, constant_like(b, quotient, 0), quotient);
}

ValueId itself(Context& c) {
  return c.tensor(0);
}

ValueId fabs(Context& c) {
  return c.b.unary("abs", c.floating(0));
}

// The number of `bins`, which ascend, that are at most x.
ValueId digitize(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.floating(0);
  const ValueId bins = b.cast(c.tensor(1, b.dtype(x)), b.dtype(x));
  if (c.rank(bins) != 1) {
    operation_error("`bins` is a list of numbers that ascend");
  }
  const int last = static_cast<int>(c.rank(x));
  const ValueId reached = b.binary("ge", b.expand_dims(x, last), bins);
  return b.reduce_sum(b.cast(reached, DType::kInt32), {last});
}

}  // namespace

std::vector<Operation> angle_operations() {
  return {
      {"arcsin", "Arcsin", "numpy", "x", "", arcsin},
      {"arccos", "Arccos", "numpy", "x", "", arccos},
      {"arctan", "Arctan", "numpy", "x", "", arctan},
      {"arctan2", "Arctan2", "numpy", "x1, x2", "", arctan2},
      {"cbrt", "Cbrt", "numpy", "x", "", cbrt},
      {"sinc", "Sinc", "numpy", "x", "", sinc},
      {"heaviside", "Heaviside", "numpy", "x1, x2", "", heaviside},
      {"fmod", "Fmod", "numpy", "x1, x2", "", fmod},
      {"fmax", "Fmax", "numpy", "x1, x2", "", number_of_both<true>},
      {"fmin", "Fmin", "numpy", "x1, x2", "", number_of_both<false>},
      {"fabs", "Fabs", "numpy", "x", "", fabs},
      {"isposinf", "Isposinf", "numpy", "x", "", is_infinity<true>},
      {"isneginf", "Isneginf", "numpy", "x", "", is_infinity<false>},
      {"isclose", "Isclose", "numpy", "x1, x2", "rtol=1e-05, atol=1e-08, equal_nan=False", isclose},
      {"logaddexp2", "Logaddexp2", "numpy", "x1, x2", "", logaddexp2},
      {"divide_no_nan", "DivideNoNan", "numpy", "x1, x2", "", divide_by_any},
      {"digitize", "Digitize", "numpy", "x, bins", "", digitize},
      {"copy", "Copy", "numpy", "x", "", itself},
  };
}

}  // namespace meshtrain
