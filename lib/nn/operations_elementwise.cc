// Operations element by element. Source: Keras 3.15 ops/numpy.py, ops/nn.py; derivatives are those
// of JAX.
#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/graph_parts.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

ValueId is_not_zero(Builder& b, ValueId x) {
  return b.dtype(x) == DType::kBool ? x : b.binary("ne", x, b.constant(0, b.dtype(x)));
}

template <const char* op>
ValueId float_op(Context& c) {
  return c.b.unary(op, c.floating(0));
}

// Of any number; bool becomes int32.
ValueId number(Context& c, size_t i) {
  const ValueId x = c.tensor(i);
  return c.b.dtype(x) == DType::kBool ? c.b.cast(x, DType::kInt32) : x;
}

template <const char* op>
ValueId number_op(Context& c) {
  return c.b.unary(op, number(c, 0));
}

std::vector<ValueId> both(Context& c) {
  std::vector<ValueId> values = c.promoted(c.operands);
  check_broadcast(c.b, values);
  return values;
}

std::vector<ValueId> as_numbers(Context& c, std::vector<ValueId> values) {
  for (ValueId& value : values) {
    value = c.b.dtype(value) == DType::kBool ? c.b.cast(value, DType::kInt32) : value;
  }
  return values;
}

std::vector<ValueId> both_numbers(Context& c) {
  return as_numbers(c, both(c));
}

template <const char* op>
ValueId binary_op(Context& c) {
  const std::vector<ValueId> x = both_numbers(c);
  return c.b.binary(op, x[0], x[1]);
}

// Sums and products: of two bools "or" and "and", which are bools.
template <const char* op, const char* of_bools>
ValueId ring_op(Context& c) {
  std::vector<ValueId> x = both(c);
  if (c.b.dtype(x[0]) == DType::kBool && c.b.dtype(x[1]) == DType::kBool) {
    return c.b.binary(of_bools, x[0], x[1]);
  }
  x = as_numbers(c, std::move(x));
  return c.b.binary(op, x[0], x[1]);
}

ValueId divide(Context& c) {
  const std::vector<ValueId> x = c.broadcast_floats();
  return c.b.div(x[0], x[1]);
}

template <const char* op>
ValueId equality(Context& c) {
  const std::vector<ValueId> x = both(c);
  return c.b.binary(op, x[0], x[1]);
}

template <const char* op>
ValueId logical(Context& c) {
  const std::vector<ValueId> x = both(c);
  return c.b.binary(op, is_not_zero(c.b, x[0]), is_not_zero(c.b, x[1]));
}

ValueId logical_xor(Context& c) {
  const std::vector<ValueId> x = both(c);
  return c.b.binary("ne", is_not_zero(c.b, x[0]), is_not_zero(c.b, x[1]));
}

ValueId logical_not(Context& c) {
  return c.b.unary("logical_not", is_not_zero(c.b, c.tensor(0)));
}

// x to a small integer as products: right for negative x and integers, with finite derivatives.
ValueId integer_power(Builder& b, ValueId x, int64_t exponent) {
  ValueId out = kNone;
  for (ValueId square = x; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) {
      out = out == kNone ? square : b.mul(out, square);
    }
    square = exponent > 1 ? b.mul(square, square) : square;
  }
  return out;
}

ValueId power(Context& c) {
  const auto* exponent = std::get_if<int64_t>(&c.operands[1].constant.data);
  if (c.operands[0].is_tensor() && !c.operands[1].is_tensor() && exponent != nullptr &&
      *exponent > 0 && *exponent <= 64) {
    return integer_power(c.b, number(c, 0), *exponent);
  }
  const std::vector<ValueId> x = both_numbers(c);
  const DType dtype = c.b.dtype(x[0]);
  if (is_floating(dtype)) {
    return c.b.binary("pow", x[0], x[1]);
  }
  const ValueId wide =
      c.b.binary("pow", c.b.cast(x[0], DType::kFloat64), c.b.cast(x[1], DType::kFloat64));
  return c.b.cast(wide, dtype);
}

ValueId floored(Builder& b, ValueId x) {
  return b.unary("floor", x);
}

// The quotient rounded down. Integers of 32 bits are exact in float64.
ValueId floor_quotient(Builder& b, ValueId x, ValueId y) {
  const DType dtype = b.dtype(x);
  if (is_floating(dtype)) {
    return floored(b, b.div(x, y));
  }
  return b.cast(floored(b, b.div(b.cast(x, DType::kFloat64), b.cast(y, DType::kFloat64))), dtype);
}

ValueId floor_divide(Context& c) {
  const std::vector<ValueId> x = both_numbers(c);
  return floor_quotient(c.b, x[0], x[1]);
}

// The remainder with the divisor's sign. A quotient that was rounded up to an integer leaves a
// remainder of the other sign, which is one divisor too small.
ValueId mod(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> x = both_numbers(c);
  const ValueId rest = b.sub(x[0], b.mul(floor_quotient(b, x[0], x[1]), x[1]));
  const ValueId zero = b.constant(0, b.dtype(rest));
  const ValueId is_other_sign = b.binary("lt", b.mul(rest, x[1]), zero);
  return b.add(rest, b.select(is_other_sign, x[1], zero));
}

ValueId where(Context& c) {
  const ValueId condition = is_not_zero(c.b, c.tensor(0, DType::kBool));
  std::vector<ValueId> x = c.promoted({c.operands[1], c.operands[2]});
  check_broadcast(c.b, {condition, x[0], x[1]});
  return c.b.select(condition, x[0], x[1]);
}

// As jnp.clip: at a limit the derivative is shared with it.
ValueId clip(Context& c) {
  const Operand low{.constant = c.arguments.at("x_min")}, high{.constant = c.arguments.at("x_max")};
  const std::vector<ValueId> x = c.promoted({c.operands[0], low, high});
  check_broadcast(c.b, x);
  if (c.b.dtype(x[0]) == DType::kBool) {
    operation_error("it takes numbers", "cast(x, \"int32\") makes bool such");
  }
  return c.b.minimum(c.b.maximum(x[0], x[1]), x[2]);
}

ValueId negative(Context& c) {
  return c.b.neg(number(c, 0));
}

// Integers are their own floor.
template <bool up>
ValueId floor_or_ceil(Context& c) {
  const ValueId x = c.floating(0);
  return up ? c.b.neg(floored(c.b, c.b.neg(x))) : floored(c.b, x);
}

ValueId round_to(Context& c) {
  if (c.integer("decimals") != 0) {
    operation_error("`decimals` must be 0", "multiply before, and divide after");
  }
  return c.b.unary("round", c.floating(0));
}

template <const char* op>
ValueId log_to_base(Context& c) {
  const std::string_view name = op;
  return c.b.mul(c.b.log(c.floating(0)), name == "log2" ? M_LOG2E : M_LOG10E);
}

ValueId tan(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.div(c.b.unary("sin", x), c.b.unary("cos", x));
}

ValueId exp2(Context& c) {
  return c.b.exp(c.b.mul(c.floating(0), M_LN2));
}

// As it rounds towards 0.
ValueId trunc(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.mul(c.b.unary("sign", x), floored(c.b, c.b.unary("abs", x)));
}

template <bool to_radians>
ValueId angle(Context& c) {
  return c.b.mul(c.floating(0), to_radians ? M_PI / 180 : 180 / M_PI);
}

// log(a + sqrt(a * a + 1)) of the absolute value, exact near 0 and with the derivative 1 there.
ValueId arcsinh(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.floating(0), zero = constant_like(b, x, 0), one = constant_like(b, x, 1);
  const ValueId is_below = b.binary("lt", x, zero);
  const ValueId a = b.select(is_below, b.neg(x), x), square = b.square(a);
  const ValueId more = b.div(square, b.add(b.sqrt(b.add(square, 1.0)), 1.0));
  return b.mul(b.select(is_below, b.neg(one), one), b.unary("log1p", b.add(a, more)));
}

ValueId arccosh(Context& c) {
  Builder& b = c.b;
  const ValueId t = b.sub(c.floating(0), 1.0);
  return b.unary("log1p", b.add(t, b.sqrt(b.mul(t, b.add(t, 2.0)))));
}

ValueId arctanh(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.mul(c.b.sub(c.b.unary("log1p", x), c.b.unary("log1p", c.b.neg(x))), 0.5);
}

// The larger times sqrt(1 + the square of their ratio): no square overflows.
ValueId hypot(Context& c) {
  Builder& b = c.b;
  const std::vector<ValueId> given = c.broadcast_floats();
  const ValueId x = b.unary("abs", given[0]), y = b.unary("abs", given[1]);
  const ValueId large = b.maximum(x, y), zero = constant_like(b, x, 0);
  const ValueId is_zero = b.binary("eq", large, zero);
  const ValueId ratio = b.div(b.minimum(x, y), b.select(is_zero, constant_like(b, x, 1), large));
  return b.select(is_zero, large, b.mul(large, b.sqrt(b.add(b.square(ratio), 1.0))));
}

double largest_of(DType dtype) {
  return dtype == DType::kFloat64    ? std::numeric_limits<double>::max()
         : dtype == DType::kFloat16  ? 65504
         : dtype == DType::kBFloat16 ? 0x1.fep127
                                     : std::numeric_limits<float>::max();
}

ValueId nan_to_num(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.floating(0), zero = constant_like(b, x, 0);
  const double most = largest_of(b.dtype(x));
  const auto limit = [&](std::string_view name, double otherwise) {
    return constant_like(b, x, c.is_null(name) ? otherwise : c.number(name));
  };
  const ValueId infinite =
      b.select(b.binary("gt", x, zero), limit("posinf", most), limit("neginf", -most));
  const ValueId no_nan =
      b.select(b.binary("eq", x, x), infinite, constant_like(b, x, c.number("nan")));
  return b.select(b.unary("is_finite", x), x, no_nan);
}

// A tensor of one number in the shape of the first operand.
ValueId filled_like(Context& c, ValueId x, const Operand& number) {
  const std::optional<DType> dtype =
      c.is_null("dtype") ? std::optional(c.b.dtype(x)) : parse_dtype(c.text("dtype"));
  if (!dtype) {
    operation_error("`dtype` must be null or the name of a dtype");
  }
  const OperationContext own{c.b, c.floatx, {number}, c.arguments};
  return broadcast_operand(c.b, c.b.cast(own.tensor(0, *dtype), *dtype), c.b.shape(x));
}

template <int number>
ValueId number_like(Context& c) {
  return filled_like(c, c.tensor(0), {.constant = ExprValue{int64_t{number}}});
}

ValueId full_like(Context& c) {
  return filled_like(c, c.tensor(0), c.operands[1]);
}

ValueId stop_gradient(Context& c) {
  return c.b.stop_gradient(c.tensor(0));
}

ValueId cosh_of(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.mul(c.b.add(c.b.exp(x), c.b.exp(c.b.neg(x))), 0.5);
}

// With expm1, whose digits near 0 a difference of exponentials would lose.
ValueId sinh_of(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.mul(c.b.sub(c.b.unary("expm1", x), c.b.unary("expm1", c.b.neg(x))), 0.5);
}

ValueId is_nan(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.binary("ne", x, x);
}

ValueId is_inf(Context& c) {
  const ValueId x = c.floating(0);
  return c.b.binary("logical_and", c.b.unary("logical_not", c.b.unary("is_finite", x)),
                    c.b.binary("eq", x, x));
}

// The larger plus log1p of what the smaller adds. Of equal ones each has half of the derivative.
ValueId logaddexp(Context& c) {
  const std::vector<ValueId> x = c.broadcast_floats();
  const ValueId most = c.b.maximum(x[0], x[1]);
  const ValueId distance = c.b.sub(c.b.minimum(x[0], x[1]), most);
  return c.b.add(most, c.b.unary("log1p", c.b.exp(distance)));
}

// Types of files, for which there are no kernels.
constexpr DType kOnlyStored[] = {DType::kInt8, DType::kInt16, DType::kUInt16, DType::kUInt32,
                                 DType::kUInt64};

ValueId cast(Context& c) {
  const std::string name = c.text("dtype");
  const auto dtype = parse_dtype(name);
  if (!dtype) {
    operation_error(fmt::format("`{}` is no dtype", name), "such as \"float32\" or \"int32\"");
  }
  if (std::find(std::begin(kOnlyStored), std::end(kOnlyStored), *dtype) != std::end(kOnlyStored)) {
    operation_error(fmt::format("nothing is computed in {}", name), "\"int32\" is as good");
  }
  return c.b.cast(c.tensor(0, *dtype), *dtype);
}

// A name as a template argument.
#define MESHTRAIN_NAME(text) constexpr char k_##text[] = #text
MESHTRAIN_NAME(neg);
MESHTRAIN_NAME(exp);
MESHTRAIN_NAME(expm1);
MESHTRAIN_NAME(log);
MESHTRAIN_NAME(log1p);
MESHTRAIN_NAME(log2);
MESHTRAIN_NAME(log10);
MESHTRAIN_NAME(sqrt);
MESHTRAIN_NAME(rsqrt);
MESHTRAIN_NAME(square);
MESHTRAIN_NAME(abs);
MESHTRAIN_NAME(sign);
MESHTRAIN_NAME(sin);
MESHTRAIN_NAME(cos);
MESHTRAIN_NAME(erf);
MESHTRAIN_NAME(reciprocal);
MESHTRAIN_NAME(is_finite);
MESHTRAIN_NAME(add);
MESHTRAIN_NAME(sub);
MESHTRAIN_NAME(mul);
MESHTRAIN_NAME(max);
MESHTRAIN_NAME(min);
MESHTRAIN_NAME(eq);
MESHTRAIN_NAME(ne);
MESHTRAIN_NAME(lt);
MESHTRAIN_NAME(le);
MESHTRAIN_NAME(gt);
MESHTRAIN_NAME(ge);
MESHTRAIN_NAME(logical_and);
MESHTRAIN_NAME(logical_or);
#undef MESHTRAIN_NAME

}  // namespace

std::vector<Operation> elementwise_operations() {
  return {
      {"negative", "Negative", "numpy", "x", "", negative},
      {"absolute", "Absolute", "numpy", "x", "", number_op<k_abs>},
      {"sign", "Sign", "numpy", "x", "", number_op<k_sign>},
      {"square", "Square", "numpy", "x", "", number_op<k_square>},
      {"exp", "Exp", "numpy", "x", "", float_op<k_exp>},
      {"expm1", "Expm1", "numpy", "x", "", float_op<k_expm1>},
      {"log", "Log", "numpy", "x", "", float_op<k_log>},
      {"log1p", "Log1p", "numpy", "x", "", float_op<k_log1p>},
      {"log2", "Log2", "numpy", "x", "", log_to_base<k_log2>},
      {"log10", "Log10", "numpy", "x", "", log_to_base<k_log10>},
      {"sqrt", "Sqrt", "numpy", "x", "", float_op<k_sqrt>},
      {"rsqrt", "Rsqrt", "math", "x", "", float_op<k_rsqrt>},
      {"reciprocal", "Reciprocal", "numpy", "x", "", float_op<k_reciprocal>},
      {"sin", "Sin", "numpy", "x", "", float_op<k_sin>},
      {"cos", "Cos", "numpy", "x", "", float_op<k_cos>},
      {"tan", "Tan", "numpy", "x", "", tan},
      {"exp2", "Exp2", "numpy", "x", "", exp2},
      {"arcsinh", "Arcsinh", "numpy", "x", "", arcsinh},
      {"arccosh", "Arccosh", "numpy", "x", "", arccosh},
      {"arctanh", "Arctanh", "numpy", "x", "", arctanh},
      {"deg2rad", "Deg2rad", "numpy", "x", "", angle<true>},
      {"rad2deg", "Rad2deg", "numpy", "x", "", angle<false>},
      {"sinh", "Sinh", "numpy", "x", "", sinh_of},
      {"cosh", "Cosh", "numpy", "x", "", cosh_of},
      {"erf", "Erf", "math", "x", "", float_op<k_erf>},
      {"floor", "Floor", "numpy", "x", "", floor_or_ceil<false>},
      {"ceil", "Ceil", "numpy", "x", "", floor_or_ceil<true>},
      {"round", "Round", "numpy", "x", "decimals=0", round_to},
      {"trunc", "Trunc", "numpy", "x", "", trunc},
      {"nan_to_num", "NanToNum", "numpy", "x", "nan=0.0, posinf=None, neginf=None", nan_to_num},
      {"zeros_like", "ZerosLike", "numpy", "x", "dtype=None", number_like<0>},
      {"ones_like", "OnesLike", "numpy", "x", "dtype=None", number_like<1>},
      {"full_like", "FullLike", "numpy", "x, fill_value", "dtype=None", full_like},
      {"stop_gradient", "StopGradient", "core", "variable", "", stop_gradient},
      {"isfinite", "Isfinite", "numpy", "x", "", float_op<k_is_finite>},
      {"isnan", "Isnan", "numpy", "x", "", is_nan},
      {"isinf", "Isinf", "numpy", "x", "", is_inf},
      {"logical_not", "LogicalNot", "numpy", "x", "", logical_not},
      {"cast", "Cast", "core", "x", "dtype", cast},
      {"clip", "Clip", "numpy", "x", "x_min, x_max", clip},
      {"add", "Add", "numpy", "x1, x2", "", ring_op<k_add, k_logical_or>},
      {"subtract", "Subtract", "numpy", "x1, x2", "", binary_op<k_sub>},
      {"multiply", "Multiply", "numpy", "x1, x2", "", ring_op<k_mul, k_logical_and>},
      {"true_divide", "TrueDivide", "numpy", "x1, x2", "", divide},
      {"divide", "Divide", "numpy", "x1, x2", "", divide},
      {"power", "Power", "numpy", "x1, x2", "", power},
      {"mod", "Mod", "numpy", "x1, x2", "", mod},
      {"floor_divide", "FloorDivide", "numpy", "x1, x2", "", floor_divide},
      {"maximum", "Maximum", "numpy", "x1, x2", "", binary_op<k_max>},
      {"minimum", "Minimum", "numpy", "x1, x2", "", binary_op<k_min>},
      {"hypot", "Hypot", "numpy", "x1, x2", "", hypot},
      {"logaddexp", "Logaddexp", "numpy", "x1, x2", "", logaddexp},
      {"equal", "Equal", "numpy", "x1, x2", "", equality<k_eq>},
      {"not_equal", "NotEqual", "numpy", "x1, x2", "", equality<k_ne>},
      {"less", "Less", "numpy", "x1, x2", "", binary_op<k_lt>},
      {"less_equal", "LessEqual", "numpy", "x1, x2", "", binary_op<k_le>},
      {"greater", "Greater", "numpy", "x1, x2", "", binary_op<k_gt>},
      {"greater_equal", "GreaterEqual", "numpy", "x1, x2", "", binary_op<k_ge>},
      {"logical_and", "LogicalAnd", "numpy", "x1, x2", "", logical<k_logical_and>},
      {"logical_or", "LogicalOr", "numpy", "x1, x2", "", logical<k_logical_or>},
      {"logical_xor", "LogicalXor", "numpy", "x1, x2", "", logical_xor},
      {"where", "Where", "numpy", "condition, x1, x2", "", where},
  };
}

}  // namespace meshtrain
