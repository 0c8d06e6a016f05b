// Elementwise ops: result element i depends on the operand elements at i only. Operands broadcast
// as NumPy's do, aligned at the last dimension; they have one dtype (cast explicitly).
//
//   any number     neg square abs sign relu; add sub mul div max min; clamp
//   floats         exp log log1p expm1 tanh sigmoid softplus sqrt rsqrt erf sin cos floor round
//                  reciprocal; pow; gelu gelu_tanh silu; gelu_grad gelu_tanh_grad silu_grad (x, dy)
//   float -> bool  is_finite
//   any -> bool    eq ne lt le gt ge
//   bool           logical_not logical_and logical_or
//   select         (bool condition, a, b) -> condition ? a : b; all three broadcast
//   clamp          attributes low, high (doubles, converted to the dtype): min(max(x, low), high)
//   cast           attribute dtype (NumPy name). To bool: x != 0; float to integer truncates
//   pin            attribute key ("d2/output"): identity; the value has the sharding that the user
//                  pinned
//
// Details that kernels must agree on:
//   - div of integers truncates towards zero. uint32 arithmetic wraps.
//   - max, min, relu and clamp hand on NaN. sign is 0 at 0 (and NaN at NaN).
//   - round takes halves to the even neighbour. softplus is log(1 + exp(x)) without overflow:
//     max(x, 0) + log1p(exp(-|x|)). sigmoid does not overflow either.
//   - Gradients: max and min share it half and half where operands are equal, as JAX does; relu has
//     0 at 0; abs has 1 at 0 and clamp a half at its ends, as in JAX; floor, round, sign have none.
#include <numbers>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

enum class Takes { kNumber, kFloat, kBool, kAny };

bool is_taken(Takes takes, DType dtype) {
  switch (takes) {
    case Takes::kNumber:
      return dtype != DType::kBool;
    case Takes::kFloat:
      return is_floating(dtype);
    case Takes::kBool:
      return dtype == DType::kBool;
    case Takes::kAny:
      return true;
  }
  return false;
}

void check_dtypes(const Node& node, std::span<const ValueType> operands, Takes takes) {
  for (const ValueType& operand : operands) {
    MESHTRAIN_OP_CHECK(node, operand.dtype == operands[0].dtype, "operands of dtypes {} and {}",
                       dtype_name(operands[0].dtype), dtype_name(operand.dtype));
  }
  MESHTRAIN_OP_CHECK(node, is_taken(takes, operands[0].dtype), "does not take {}",
                     dtype_name(operands[0].dtype));
}

Shape broadcast_all(const Node& node, std::span<const ValueType> operands) {
  Shape shape;
  for (const ValueType& operand : operands) {
    MESHTRAIN_OP_CHECK(node, can_broadcast(shape, operand.shape), "shapes {} and {} do not fit",
                       shape_string(shape), shape_string(operand.shape));
    shape = broadcast_shapes(shape, operand.shape);
  }
  return shape;
}

OpDef elementwise(std::string_view name, size_t num_operands, Takes takes, bool gives_bool) {
  OpDef op;
  op.name = name;
  op.infer = [=](const Node& node, std::span<const ValueType> operands) {
    check_num_operands(node, operands, num_operands);
    check_dtypes(node, operands, takes);
    return std::vector<ValueType>{
        {broadcast_all(node, operands), gives_bool ? DType::kBool : operands[0].dtype}};
  };
  op.rule = broadcast_rule;
  op.elementwise = true;
  op.is_costly = takes == Takes::kFloat || name == "div";
  return op;
}

std::function<Linearity(const Node&)> linear(Linearity linearity) {
  return [linearity](const Node&) { return linearity; };
}

// --- one operand ---------------------------------------------------------------------------------

// The cotangent of x from that of y = op(x).
using UnaryVjp = ValueId (*)(Builder& b, ValueId x, ValueId y, ValueId g);

struct UnaryOp {
  std::string_view name;
  Takes takes;
  UnaryVjp vjp;  // null: none
  bool gives_bool = false;
  bool keeps_operand = false;  // x itself, for the gradient
};

const double kTwoOverRootPi = 2.0 * std::numbers::inv_sqrtpi;

const UnaryOp kUnaryOps[] = {
    {"neg", Takes::kNumber, [](Builder& b, ValueId, ValueId, ValueId g) { return b.neg(g); }},
    {"exp", Takes::kFloat, [](Builder& b, ValueId, ValueId y, ValueId g) { return b.mul(g, y); }},
    {"log", Takes::kFloat, [](Builder& b, ValueId x, ValueId, ValueId g) { return b.div(g, x); }},
    {"log1p", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.div(g, b.add(x, 1.0)); }},
    {"expm1", Takes::kFloat,
     [](Builder& b, ValueId, ValueId y, ValueId g) { return b.mul(g, b.add(y, 1.0)); }},
    {"tanh", Takes::kFloat,
     [](Builder& b, ValueId, ValueId y, ValueId g) {
       return b.mul(g, b.sub(b.constant(1, b.dtype(y)), b.square(y)));
     }},
    {"sigmoid", Takes::kFloat,
     [](Builder& b, ValueId, ValueId y, ValueId g) {
       return b.mul(g, b.mul(y, b.sub(b.constant(1, b.dtype(y)), y)));
     }},
    {"softplus", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.mul(g, b.unary("sigmoid", x)); }},
    {"gelu", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.binary("gelu_grad", x, g); }, false,
     true},
    {"gelu_tanh", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.binary("gelu_tanh_grad", x, g); },
     false, true},
    {"silu", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.binary("silu_grad", x, g); }, false,
     true},
    {"sqrt", Takes::kFloat,
     [](Builder& b, ValueId, ValueId y, ValueId g) { return b.div(b.mul(g, 0.5), y); }},
    {"rsqrt", Takes::kFloat,
     [](Builder& b, ValueId, ValueId y, ValueId g) {
       return b.mul(g, b.mul(b.mul(y, b.square(y)), -0.5));
     }},
    {"square", Takes::kNumber,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.mul(g, b.mul(x, 2.0)); }},
    {"abs", Takes::kNumber,
     [](Builder& b, ValueId x, ValueId, ValueId g) {
       return b.select(b.binary("ge", x, zero_like(b, x)), g, b.neg(g));
     }},
    {"sign", Takes::kNumber, nullptr},
    {"erf", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) {
       return b.mul(g, b.mul(b.exp(b.neg(b.square(x))), kTwoOverRootPi));
     }},
    {"sin", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.mul(g, b.unary("cos", x)); }},
    {"cos", Takes::kFloat,
     [](Builder& b, ValueId x, ValueId, ValueId g) { return b.neg(b.mul(g, b.unary("sin", x))); }},
    {"floor", Takes::kFloat, nullptr},
    {"round", Takes::kFloat, nullptr},
    {"reciprocal", Takes::kFloat,
     [](Builder& b, ValueId, ValueId y, ValueId g) { return b.neg(b.mul(g, b.square(y))); }},
    {"relu", Takes::kNumber,
     // y is positive where x is; the ops before x are then not needed.
     [](Builder& b, ValueId, ValueId y, ValueId g) {
       return b.select(b.binary("gt", y, zero_like(b, y)), g, zero_like(b, g));
     }},
    {"logical_not", Takes::kBool, nullptr},
    {"is_finite", Takes::kFloat, nullptr, true},
};

OpDef make_unary(const UnaryOp& kind) {
  OpDef op = elementwise(kind.name, 1, kind.takes, kind.gives_bool);
  if (kind.name == "neg") {
    op.linearity = linear({.any_one = 1});
  }
  op.is_costly = op.is_costly && !kind.keeps_operand;  // to keep y, too, takes more
  if (kind.vjp != nullptr) {
    op.vjp = [vjp = kind.vjp](Builder& b, const Node& node, std::span<const ValueId> g) {
      return std::vector<ValueId>{vjp(b, node.inputs[0], node.outputs[0], g[0])};
    };
  }
  return op;
}

// --- two operands --------------------------------------------------------------------------------

// Cotangents of a and c from that of y = op(a, c), before they are summed over broadcast
// dimensions.
using BinaryVjp = std::pair<ValueId, ValueId> (*)(Builder& b, ValueId a, ValueId c, ValueId y,
                                                  ValueId g);

struct BinaryOp {
  std::string_view name;
  Takes takes;
  BinaryVjp vjp;
  Linearity linearity = {};
  std::optional<double> neutral = {};
  bool gives_bool = false;
};

// Returns the gradient of the operand that wins where `wins`; equal operands (a == c) share it.
ValueId winner_share(Builder& b, std::string_view wins, ValueId a, ValueId c, ValueId g) {
  const ValueId half = b.mul(g, 0.5);
  const ValueId shared = b.select(b.binary("eq", a, c), half, zero_like(b, g));
  return b.select(b.binary(wins, a, c), g, shared);
}

std::pair<ValueId, ValueId> div_vjp(Builder& b, ValueId, ValueId c, ValueId y, ValueId g) {
  const ValueId quotient = b.div(g, c);
  return {quotient, b.neg(b.mul(quotient, y))};
}

std::pair<ValueId, ValueId> pow_vjp(Builder& b, ValueId a, ValueId c, ValueId y, ValueId g) {
  // a^0 is 1 everywhere: its gradient 0 * 0^-1 must not be a NaN at 0.
  const ValueId is_one = b.binary("eq", c, zero_like(b, c));
  const ValueId power = b.select(is_one, b.constant(1, b.dtype(c)), b.sub(c, 1.0));
  const ValueId base = b.mul(g, b.mul(c, b.binary("pow", a, power)));
  // 0^c does not change with c > 0: the logarithm of 0 must not make a NaN of that.
  const ValueId is_zero = b.binary("eq", a, zero_like(b, a));
  const ValueId safe = b.select(is_zero, b.constant(1, b.dtype(a)), a);
  return {base, b.mul(g, b.mul(b.log(safe), y))};
}

const BinaryOp kBinaryOps[] = {
    {"add",
     Takes::kNumber,
     [](Builder&, ValueId, ValueId, ValueId, ValueId g) { return std::pair(g, g); },
     {.all = 0b11},
     0},
    {"sub",
     Takes::kNumber,
     [](Builder& b, ValueId, ValueId, ValueId, ValueId g) { return std::pair(g, b.neg(g)); },
     {.all = 0b11},
     0},
    {"mul",
     Takes::kNumber,
     [](Builder& b, ValueId a, ValueId c, ValueId, ValueId g) {
       return std::pair(b.mul(g, c), b.mul(g, a));
     },
     {.any_one = 0b11},
     1},
    {"div", Takes::kNumber, div_vjp, {.any_one = 0b01}, 1},
    {"max", Takes::kNumber,
     [](Builder& b, ValueId a, ValueId c, ValueId, ValueId g) {
       return std::pair(winner_share(b, "gt", a, c, g), winner_share(b, "lt", a, c, g));
     }},
    {"min", Takes::kNumber,
     [](Builder& b, ValueId a, ValueId c, ValueId, ValueId g) {
       return std::pair(winner_share(b, "lt", a, c, g), winner_share(b, "gt", a, c, g));
     }},
    {"pow", Takes::kFloat, pow_vjp},
    {"gelu_grad", Takes::kFloat, nullptr, {.any_one = 0b10}},
    {"gelu_tanh_grad", Takes::kFloat, nullptr, {.any_one = 0b10}},
    {"silu_grad", Takes::kFloat, nullptr, {.any_one = 0b10}},
    {"eq", Takes::kAny, nullptr, {}, {}, true},
    {"ne", Takes::kAny, nullptr, {}, {}, true},
    {"lt", Takes::kNumber, nullptr, {}, {}, true},
    {"le", Takes::kNumber, nullptr, {}, {}, true},
    {"gt", Takes::kNumber, nullptr, {}, {}, true},
    {"ge", Takes::kNumber, nullptr, {}, {}, true},
    {"logical_and", Takes::kBool, nullptr},
    {"logical_or", Takes::kBool, nullptr},
};

OpDef make_binary(const BinaryOp& kind) {
  OpDef op = elementwise(kind.name, 2, kind.takes, kind.gives_bool);
  op.linearity = linear(kind.linearity);
  op.neutral = kind.neutral;
  if (kind.vjp != nullptr) {
    op.vjp = [vjp = kind.vjp](Builder& b, const Node& node, std::span<const ValueId> g) {
      const ValueId a = node.inputs[0];
      const ValueId c = node.inputs[1];
      const auto [ga, gc] = vjp(b, a, c, node.outputs[0], g[0]);
      return std::vector<ValueId>{sum_to(b, ga, b.shape(a)), sum_to(b, gc, b.shape(c))};
    };
  }
  return op;
}

// --- the rest ------------------------------------------------------------------------------------

OpDef make_select() {
  OpDef op = elementwise("select", 3, Takes::kAny, false);
  op.infer = [](const Node& node, std::span<const ValueType> operands) {
    check_num_operands(node, operands, 3);
    MESHTRAIN_OP_CHECK(node, operands[0].dtype == DType::kBool, "the condition is {}",
                       dtype_name(operands[0].dtype));
    check_dtypes(node, operands.subspan(1), Takes::kAny);
    return std::vector<ValueType>{{broadcast_all(node, operands), operands[1].dtype}};
  };
  op.linearity = linear({.all = 0b110});
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const ValueId condition = node.inputs[0];
    const ValueId zero = zero_like(b, g[0]);
    const ValueId ga = b.select(condition, g[0], zero);
    const ValueId gb = b.select(condition, zero, g[0]);
    return std::vector<ValueId>{kNone, sum_to(b, ga, b.shape(node.inputs[1])),
                                sum_to(b, gb, b.shape(node.inputs[2]))};
  };
  return op;
}

OpDef make_clamp() {
  OpDef op = elementwise("clamp", 1, Takes::kNumber, false);
  op.infer = [infer = op.infer](const Node& node, std::span<const ValueType> operands) {
    MESHTRAIN_OP_CHECK(node, node.attr_double("low") <= node.attr_double("high"), "low above high");
    return infer(node, operands);
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const ValueId x = node.inputs[0];
    const ValueId low = b.constant(node.attr_double("low"), b.dtype(x));
    const ValueId high = b.constant(node.attr_double("high"), b.dtype(x));
    const auto both = [&](const char* above, const char* below) {
      return b.binary("logical_and", b.binary(above, x, low), b.binary(below, x, high));
    };
    const ValueId at_ends = b.select(both("ge", "le"), b.mul(g[0], 0.5), zero_like(b, g[0]));
    return std::vector<ValueId>{b.select(both("gt", "lt"), g[0], at_ends)};
  };
  return op;
}

OpDef make_cast() {
  OpDef op = elementwise("cast", 1, Takes::kAny, false);
  op.kind = OpKind::kCast;
  op.converts = true;
  op.infer = [](const Node& node, std::span<const ValueType> operands) {
    check_num_operands(node, operands, 1);
    return std::vector<ValueType>{{operands[0].shape, dtype_attr(node)}};
  };
  // The terms of a sum may be converted one by one where that loses (nearly) nothing.
  op.linearity = [](const Node& node) {
    const DType dtype = dtype_attr(node);
    const bool wide = dtype == DType::kFloat32 || dtype == DType::kFloat64;
    return Linearity{.any_one = wide ? 1u : 0u};
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const DType from = b.dtype(node.inputs[0]);
    const bool continuous = is_floating(from) && is_floating(b.dtype(g[0]));
    return std::vector<ValueId>{continuous ? b.cast(g[0], from) : kNone};
  };
  return op;
}

OpDef make_pin() {
  OpDef op = elementwise("pin", 1, Takes::kAny, false);
  op.kind = OpKind::kPin;
  op.is_unique = true;
  op.infer = [infer = op.infer](const Node& node, std::span<const ValueType> operands) {
    node.attr_string("key");
    return infer(node, operands);
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return std::vector<ValueId>{b.pin(g[0], node.attr_string("key"))};
  };
  op.flops = no_flops;
  op.elementwise = false;  // never part of a fused kernel
  return op;
}

}  // namespace

std::vector<OpDef> elementwise_ops() {
  std::vector<OpDef> ops;
  for (const UnaryOp& kind : kUnaryOps) {
    ops.push_back(make_unary(kind));
  }
  for (const BinaryOp& kind : kBinaryOps) {
    ops.push_back(make_binary(kind));
  }
  ops.push_back(make_select());
  ops.push_back(make_clamp());
  ops.push_back(make_cast());
  ops.push_back(make_pin());
  return ops;
}

}  // namespace meshtrain
