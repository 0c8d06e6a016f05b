// Images sampled at affine, projective or given coordinates (ir/ops/warp.cc).
#include "exec/lower.h"

namespace meshtrain {
namespace {

void add_warp(StepContext& context, bool transposed) {
  const Buffer& out = context.output(0);
  WarpShape shape{out.shape[0], out.shape[1], out.shape[2], out.shape[3], out.dtype};
  const Shape& places = context.input(1).shape;
  shape.terms = places.size() == 2 ? places[1] : 0;
  shape.nearest = context.attr_string("interpolation") == "nearest";
  shape.fill = warp_fill(context.attr_string("fill"));
  shape.fill_value = context.attr_double("fill_value");
  context.add(BeginGroup{});
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    context.add(AffineWarpSpec{shape, transposed, context.input_shard(0, p),
                               context.input_shard(1, p), context.output_shard(0, p)});
  }
  context.add(EndGroup{});
}

void lower_affine_warp(StepContext& context) {
  add_warp(context, false);
}

void lower_affine_warp_transpose(StepContext& context) {
  add_warp(context, true);
}

}  // namespace

std::vector<OpLowering> warp_lowerings() {
  return {
      {"affine_warp", lower_affine_warp},
      {"affine_warp_transpose", lower_affine_warp_transpose},
  };
}

}  // namespace meshtrain
