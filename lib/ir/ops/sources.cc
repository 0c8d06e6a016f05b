// Sources: values that come from the host, the variable store or nothing.
//
//   op           operands  attributes
//   parameter    -         variable (int: index in Graph::variables), shape, dtype
//   var_use      x         - ; identity on global values, storage layout -> compute layout
//   input        -         name, batch (int: 1 when dimension 0 is the batch), shape, dtype
//   constant     -         value (double, converted to the dtype), shape, dtype
//   iota         -         axis, shape, dtype; element = its global index along `axis`
//   random_bits  step      seed (int64), stream (int64, 32 bits), shape; result uint32
//
// `shape` is the global shape (ints), `dtype` a NumPy name; both only tell what is defined here.
//
// random_bits: element with row-major global index i is
//   philox_bits(uint64(seed), uint32(stream), uint32(step), i)          (base/philox.h)
// where `step` is an int64 scalar operand. The stream is the low half of hash_text(node path),
// given by the Builder.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

std::vector<ValueType> declared_type(const Node& node, std::span<const ValueType> operands) {
  check_num_operands(node, operands, 0);
  return {{node.attr_ints("shape"), dtype_attr(node)}};
}

OpDef declared(std::string_view name, OpKind kind = OpKind::kOther) {
  OpDef op;
  op.name = name;
  op.kind = kind;
  op.infer = declared_type;
  op.rule = broadcast_rule;
  op.flops = no_flops;
  return op;
}

// A value from the host or the variable store.
OpDef given(std::string_view name, OpKind kind) {
  OpDef op = declared(name, kind);
  op.is_unique = true;
  return op;
}

OpDef var_use() {
  OpDef op;
  op.name = "var_use";
  op.kind = OpKind::kVarUse;
  op.is_layout_boundary = true;
  op.infer = [](const Node& node, std::span<const ValueType> operands) {
    check_num_operands(node, operands, 1);
    return std::vector<ValueType>{operands[0]};
  };
  op.rule = broadcast_rule;
  op.vjp = [](Builder&, const Node&, std::span<const ValueId> g) {
    return std::vector<ValueId>{g[0]};
  };
  op.flops = no_flops;
  return op;
}

OpDef iota() {
  OpDef op = declared("iota");
  op.infer = [](const Node& node, std::span<const ValueType> operands) {
    axis_attr(node, node.attr_ints("shape").size());
    return declared_type(node, operands);
  };
  return op;
}

OpDef random_bits() {
  OpDef op;
  op.name = "random_bits";
  op.infer = [](const Node& node, std::span<const ValueType> operands) {
    check_num_operands(node, operands, 1);
    const ValueType scalar{{}, DType::kInt64};
    MESHTRAIN_OP_CHECK(node, operands[0] == scalar, "step must be an int64 scalar");
    node.attr_int("seed");
    node.attr_int("stream");
    return std::vector<ValueType>{{node.attr_ints("shape"), DType::kUInt32}};
  };
  op.rule = broadcast_rule;
  op.random = true;
  return op;
}

}  // namespace

std::vector<OpDef> source_ops() {
  return {given("parameter", OpKind::kParameter),  var_use(), given("input", OpKind::kInput),
          declared("constant", OpKind::kConstant), iota(),    random_bits()};
}

}  // namespace meshtrain
