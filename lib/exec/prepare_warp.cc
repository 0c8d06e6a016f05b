// Images sampled at affine coordinates (ir/ops/warp.cc).
#include "exec/prepare.h"

namespace meshtrain {

namespace {

void add_warp(StepContext& context) {
  const bool transposed = context.step.op->name == "affine_warp_transpose";
  const Buffer& out = context.output(0);
  WarpShape shape{out.shape[0], out.shape[1], out.shape[2], out.shape[3], out.dtype};
  shape.nearest = context.attr_string("interpolation") == "nearest";
  shape.fill = warp_fill(context.attr_string("fill"));
  shape.fill_value = context.attr_double("fill_value");
  context.maker.begin_group();
  for (int64_t p = 0; p < context.num_pieces(); ++p) {
    context.maker.affine_warp(shape, transposed, context.input_piece(0, p),
                              context.input_piece(1, p), context.output_piece(0, p));
  }
  context.maker.end_group();
}

}  // namespace

std::vector<Preparation> warp_preparations() {
  return {{"affine_warp", add_warp}, {"affine_warp_transpose", add_warp}};
}

}  // namespace meshtrain
