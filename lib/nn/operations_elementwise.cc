// Operations element by element. Source: Keras 3.15 ops/numpy.py, ops/nn.py; derivatives are those
// of JAX.
#include <cmath>

#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/compile.h"
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

std::vector<ValueId> both_numbers(Context& c) {
  std::vector<ValueId> values = both(c);
  for (ValueId& value : values) {
    value = c.b.dtype(value) == DType::kBool ? c.b.cast(value, DType::kInt32) : value;
  }
  return values;
}

std::vector<ValueId> both_floats(Context& c) {
  std::vector<ValueId> values = both(c);
  for (ValueId& value : values) {
    value = is_floating(c.b.dtype(value)) ? value : c.b.cast(value, c.floatx);
  }
  return values;
}

template <const char* op>
ValueId binary_op(Context& c) {
  const std::vector<ValueId> x = both_numbers(c);
  return c.b.binary(op, x[0], x[1]);
}

ValueId divide(Context& c) {
  const std::vector<ValueId> x = both_floats(c);
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

template <bool is_cosh>
ValueId hyperbolic(Context& c) {
  const ValueId x = c.floating(0);
  const ValueId up = c.b.exp(x), down = c.b.exp(c.b.neg(x));
  return c.b.mul(is_cosh ? c.b.add(up, down) : c.b.sub(up, down), 0.5);
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

// The larger plus log1p of what the smaller adds.
ValueId logaddexp(Context& c) {
  const std::vector<ValueId> x = both_floats(c);
  const ValueId distance = c.b.unary("abs", c.b.sub(x[0], x[1]));
  return c.b.add(c.b.maximum(x[0], x[1]), c.b.unary("log1p", c.b.exp(c.b.neg(distance))));
}

ValueId cast(Context& c) {
  const std::string name = c.text("dtype");
  const auto dtype = parse_dtype(name);
  if (!dtype) {
    operation_error(fmt::format("`{}` is no dtype", name), "such as \"float32\" or \"int32\"");
  }
  return c.b.cast(c.tensor(0, *dtype), *dtype);
}

ConfigValue config_value(const ExprValue& value) {
  ConfigValue out;
  if (const auto* integer = std::get_if<int64_t>(&value.data)) {
    out.data = *integer;
  } else if (const auto* number = std::get_if<double>(&value.data)) {
    out.data = *number;
  } else if (const auto* boolean = std::get_if<bool>(&value.data)) {
    out.data = *boolean;
  }
  return out;
}

// The activation function `name` of the catalogue.
template <const char* name>
ValueId activation(Context& c) {
  auto object = std::make_shared<ConfigObject>();
  object->class_name = object->spelled = name;
  for (const auto& [key, value] : c.arguments) {
    object->args[key] = config_value(value);
  }
  const ValueId x = c.floating(0);
  const ConfigValue function{.data = object};
  std::string problem;
  if (c.arguments.contains("axis")) {
    c.axis("axis", c.b.shape(x).size());
  }
  activation_shape(function, c.b.shape(x), problem);
  if (!problem.empty()) {
    operation_error(problem);
  }
  return add_activation(c.b, function, x);
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
MESHTRAIN_NAME(relu);
MESHTRAIN_NAME(relu6);
MESHTRAIN_NAME(leaky_relu);
MESHTRAIN_NAME(elu);
MESHTRAIN_NAME(celu);
MESHTRAIN_NAME(selu);
MESHTRAIN_NAME(gelu);
MESHTRAIN_NAME(silu);
MESHTRAIN_NAME(glu);
MESHTRAIN_NAME(tanh);
MESHTRAIN_NAME(sigmoid);
MESHTRAIN_NAME(log_sigmoid);
MESHTRAIN_NAME(hard_sigmoid);
MESHTRAIN_NAME(hard_silu);
MESHTRAIN_NAME(hard_tanh);
MESHTRAIN_NAME(softplus);
MESHTRAIN_NAME(softsign);
MESHTRAIN_NAME(softmax);
MESHTRAIN_NAME(log_softmax);
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
      {"sinh", "Sinh", "numpy", "x", "", hyperbolic<false>},
      {"cosh", "Cosh", "numpy", "x", "", hyperbolic<true>},
      {"erf", "Erf", "math", "x", "", float_op<k_erf>},
      {"floor", "Floor", "numpy", "x", "", floor_or_ceil<false>},
      {"ceil", "Ceil", "numpy", "x", "", floor_or_ceil<true>},
      {"round", "Round", "numpy", "x", "decimals=0", round_to},
      {"isfinite", "Isfinite", "numpy", "x", "", float_op<k_is_finite>},
      {"isnan", "Isnan", "numpy", "x", "", is_nan},
      {"isinf", "Isinf", "numpy", "x", "", is_inf},
      {"logical_not", "LogicalNot", "numpy", "x", "", logical_not},
      {"cast", "Cast", "core", "x", "dtype", cast},
      {"clip", "Clip", "numpy", "x", "x_min, x_max", clip},
      {"add", "Add", "numpy", "x1, x2", "", binary_op<k_add>},
      {"subtract", "Subtract", "numpy", "x1, x2", "", binary_op<k_sub>},
      {"multiply", "Multiply", "numpy", "x1, x2", "", binary_op<k_mul>},
      {"true_divide", "TrueDivide", "numpy", "x1, x2", "", divide},
      {"divide", "Divide", "numpy", "x1, x2", "", divide},
      {"power", "Power", "numpy", "x1, x2", "", power},
      {"mod", "Mod", "numpy", "x1, x2", "", mod},
      {"floor_divide", "FloorDivide", "numpy", "x1, x2", "", floor_divide},
      {"maximum", "Maximum", "numpy", "x1, x2", "", binary_op<k_max>},
      {"minimum", "Minimum", "numpy", "x1, x2", "", binary_op<k_min>},
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

std::vector<Operation> activation_operations() {
  return {
      {"relu", "Relu", "nn", "x", "", activation<k_relu>},
      {"relu6", "Relu6", "nn", "x", "", activation<k_relu6>},
      {"leaky_relu", "LeakyRelu", "nn", "x", "negative_slope=0.2", activation<k_leaky_relu>},
      {"elu", "Elu", "nn", "x", "alpha=1.0", activation<k_elu>},
      {"celu", "Celu", "nn", "x", "alpha=1.0", activation<k_celu>},
      {"selu", "Selu", "nn", "x", "", activation<k_selu>},
      {"gelu", "Gelu", "nn", "x", "approximate=True", activation<k_gelu>},
      {"silu", "Silu", "nn", "x", "", activation<k_silu>},
      {"glu", "Glu", "nn", "x", "axis=-1", activation<k_glu>},
      {"tanh", "Tanh", "numpy", "x", "", activation<k_tanh>},
      {"sigmoid", "Sigmoid", "nn", "x", "", activation<k_sigmoid>},
      {"log_sigmoid", "LogSigmoid", "nn", "x", "", activation<k_log_sigmoid>},
      {"hard_sigmoid", "HardSigmoid", "nn", "x", "", activation<k_hard_sigmoid>},
      {"hard_silu", "HardSilu", "nn", "x", "", activation<k_hard_silu>},
      {"hard_tanh", "HardTanh", "nn", "x", "", activation<k_hard_tanh>},
      {"softplus", "Softplus", "nn", "x", "", activation<k_softplus>},
      {"softsign", "Softsign", "nn", "x", "", activation<k_softsign>},
      {"softmax", "Softmax", "nn", "x", "axis=-1", activation<k_softmax>},
      {"log_softmax", "LogSoftmax", "nn", "x", "axis=-1", activation<k_log_softmax>},
  };
}

}  // namespace meshtrain
