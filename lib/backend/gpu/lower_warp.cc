// Images sampled at affine, projective or given coordinates, as cpu/warp.cc computes them.
#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

std::string_view fill_name(WarpFill fill) {
  switch (fill) {
    case WarpFill::kConstant:
      return "WarpFill::kConstant";
    case WarpFill::kNearest:
      return "WarpFill::kNearest";
    case WarpFill::kWrap:
      return "WarpFill::kWrap";
    case WarpFill::kReflect:
      return "WarpFill::kReflect";
    case WarpFill::kMirror:
      return "WarpFill::kMirror";
  }
  return "";
}

}  // namespace

void GpuLowering::make(const AffineWarpSpec& spec) {
  const auto& [shape, transposed, x, transforms, out] = spec;
  MESHTRAIN_CHECK(is_floating(shape.dtype), "{}", dtype_name(shape.dtype));
  const int64_t image = shape.height * shape.width * shape.channels;
  const int64_t total = shape.images * image;
  if (total == 0)
    return;
  Launch launch;
  launch.blocks = blocks_for(total, 1);
  launch.work = total * (transposed ? 5 + shape.height : 5);
  launch.args = {address(x), address(transforms), address(out)};
  const int64_t step = static_cast<int64_t>(launch.blocks) * kThreads;
  const std::string warping =
      struct_text("Warping", {{"total", total},
                              {"step", step},
                              {"height", shape.height},
                              {"width", shape.width},
                              {"channels", shape.channels},
                              {"terms", shape.terms},
                              {"fill", fill_name(shape.fill)},
                              {"nearest", shape.nearest ? "true" : "false"}});
  const std::string_view function = transposed ? "warp_transpose" : "warp";
  launch.body = make_body(function,
                          call_text(function, {warping, std::string(type_name(shape.dtype))}, false,
                                    transposed ? "" : literal(shape.fill_value, shape.dtype)),
                          0, false, "warp");
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  add(std::move(launch), std::vector<Use>{{x, total * item, false},
                                          {transforms, shape.images * shape.numbers() * 8, false},
                                          {out, total * item, true}});
}

}  // namespace meshtrain::gpu
