// dropout: elements zeroed at random, the rest scaled so that the mean is preserved.
//
//   op       operands  attributes
//   dropout  x, step   rate (double, 0 <= rate < 1), seed (int64), stream (int64, 32 bits),
//                      noise_shape (ints: x's rank; each is x's global size, or 1 = shared)
//
// With i the row-major global index, within noise_shape, of an element's mask (coordinate 0 in
// dimensions of size 1):
//   bits = philox_bits(uint64(seed), uint32(stream), uint32(step), i)    (base/philox.h)
//   y    = bits < philox_threshold(rate) ? 0 : x * (1 / (1 - rate))      (the factor in x's dtype)
// so that the mask does not depend on the mesh. `step` is an int64 scalar. The stream is the low
// half of hash_text(path of the forward node), given by the Builder; the gradient is a dropout node
// with the same stream: the same mask on the cotangent.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

std::vector<ValueType> infer_mask(const Node& node, std::span<const ValueType> operands) {
  check_num_operands(node, operands, 2);
  const double rate = node.attr_double("rate");
  MESHTRAIN_OP_CHECK(node, rate >= 0 && rate < 1, "rate {}", rate);
  MESHTRAIN_OP_CHECK(node, is_floating(operands[0].dtype), "does not take {}",
                     dtype_name(operands[0].dtype));
  const ValueType scalar{{}, DType::kInt64};
  MESHTRAIN_OP_CHECK(node, operands[1] == scalar, "step must be an int64 scalar");
  node.attr_int("seed");
  node.attr_int("stream");
  const Shape& noise = node.attr_ints("noise_shape");
  const Shape& shape = operands[0].shape;
  MESHTRAIN_OP_CHECK(node, noise.size() == shape.size(), "noise_shape {} for {}",
                     shape_string(noise), shape_string(shape));
  for (size_t i = 0; i < noise.size(); ++i) {
    MESHTRAIN_OP_CHECK(node, noise[i] == 1 || noise[i] == shape[i], "noise_shape {} for {}",
                       shape_string(noise), shape_string(shape));
  }
  return {operands[0]};
}

}  // namespace

std::vector<OpDef> dropout_ops() {
  OpDef op;
  op.name = "dropout";
  op.infer = infer_mask;
  op.rule = broadcast_rule;
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return std::vector<ValueId>{b.apply("dropout", {g[0], node.inputs[1]}, node.attrs), kNone};
  };
  op.random = true;
  return {op};
}

}  // namespace meshtrain
