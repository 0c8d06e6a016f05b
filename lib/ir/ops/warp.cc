// Images sampled at affine, projective or given coordinates, and the transpose of that.
//
//   op                     operands                          result
//   affine_warp            x (N, H, W, C), t float64 (N, T)  as x
//   affine_warp_transpose  dy (N, H, W, C), t                as dy
//
// Result pixel (row i, column j) of image n is x[n] at
//   column = t[0] j + t[1] i + t[2],   row = t[3] j + t[4] i + t[5]    (t of image n)
// T is 6, or 8: then both are divided by t[6] j + t[7] i + 1. Or t is (N, H, W, 2) and has the
// column and the row for each pixel. Attributes: interpolation "nearest" (the rounded place, halves
// away from zero) or "bilinear" (the four pixels around it); fill, what index i outside of [0, n)
// stands for:
//   constant   the attribute fill_value (double)
//   nearest    the first or last pixel
//   wrap       i mod n
//   reflect    mirrored with the edge pixel: (d c b a | a b c d | d c b a)
//   mirror     mirrored without it: (d c b | a b c d | c b a)
// as jax.scipy.ndimage.map_coordinates, orders 0 and 1. No gradient flows to t. The transpose adds
// each dy to the pixels that its result was made of, by their weights.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

Types infer_warp(const Node& node, Operands operands) {
  check_num_operands(node, operands, 2);
  const ValueType& x = operands[0];
  const ValueType& t = operands[1];
  const bool is_transform = x.shape.size() == 4 && t.shape.size() == 2 &&
                            t.shape[0] == x.shape[0] && (t.shape[1] == 6 || t.shape[1] == 8);
  const bool is_places =
      x.shape.size() == 4 && t.shape == Shape{x.shape[0], x.shape[1], x.shape[2], 2};
  const bool fits = (is_transform || is_places) && t.dtype == DType::kFloat64;
  MESHTRAIN_OP_CHECK(node, is_floating(x.dtype) && fits, "operands {} {} and {} {}",
                     dtype_name(x.dtype), shape_string(x.shape), dtype_name(operands[1].dtype),
                     shape_string(operands[1].shape));
  const std::string& interpolation = node.attr_string("interpolation");
  MESHTRAIN_OP_CHECK(node, interpolation == "nearest" || interpolation == "bilinear",
                     "interpolation {}", interpolation);
  const std::string& fill = node.attr_string("fill");
  MESHTRAIN_OP_CHECK(node,
                     fill == "constant" || fill == "nearest" || fill == "wrap" ||
                         fill == "reflect" || fill == "mirror",
                     "fill {}", fill);
  node.attr_double("fill_value");
  return {x};
}

// Batch and channels are shared by all tensors; rows and columns must be whole.
ShardingRule rule_of(const Node&, std::span<const Shape> operands, std::span<const Shape>) {
  RuleBuilder rule;
  const Shape& shape = operands[0];
  const int batch = rule.pass(shape[0]);
  const int channels = rule.pass(shape[3]);
  const auto image = [&] {
    return TensorFactors{{batch}, {rule.gather(shape[1])}, {rule.gather(shape[2])}, {channels}};
  };
  rule.operand(image());
  TensorFactors places = {{batch}};
  for (size_t i = 1; i < operands[1].size(); ++i) {
    places.push_back({rule.gather(operands[1][i])});
  }
  rule.operand(places);
  rule.result(image());
  return rule.take();
}

OpDef make_warp(std::string_view name) {
  OpDef op;
  op.name = name;
  op.infer = infer_warp;
  op.rule = rule_of;
  op.flops = [](const Node&, std::span<const Shape>, std::span<const Shape> results) {
    return 8 * static_cast<double>(num_elements(results[0]));
  };
  return op;
}

}  // namespace

std::vector<OpDef> warp_ops() {
  OpDef warp = make_warp("affine_warp");
  warp.linearity = [](const Node& node) {
    const bool adds = node.attr_string("fill") == "constant" && node.attr_double("fill_value") != 0;
    return Linearity{.any_one = adds ? 0u : 1u};
  };
  warp.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return Ids{b.apply("affine_warp_transpose", {g[0], node.inputs[1]}, node.attrs), kNone};
  };
  OpDef transpose = make_warp("affine_warp_transpose");
  transpose.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  transpose.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    Attrs attrs = node.attrs;
    attrs["fill_value"] = 0.0;
    return Ids{b.apply("affine_warp", {g[0], node.inputs[1]}, std::move(attrs)), kNone};
  };
  return {warp, transpose};
}

}  // namespace meshtrain
