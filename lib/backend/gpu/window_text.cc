#include "backend/gpu/window_text.h"

#include <algorithm>

#include "backend/gpu/command.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

template <class Shape>
std::string make_text(const Shape& shape) {
  return struct_text("Window", {{"input", shape.input},
                                {"output", shape.output},
                                {"cells", shape.cells},
                                {"strides", shape.strides},
                                {"dilations", shape.dilations},
                                {"pads", shape.pads}});
}

template <class Shape>
int64_t image_elements(const Shape& shape) {
  return std::max(shape.input_bytes(), shape.output_bytes()) /
         static_cast<int64_t>(dtype_size(shape.dtype));
}

}  // namespace

std::string window_text(const PoolShape& shape) {
  return make_text(shape);
}

std::string window_text(const ConvShape& shape) {
  return make_text(shape);
}

int64_t window_reach(const PoolShape& shape, int64_t elements, int64_t more) {
  return std::max({image_elements(shape), elements + kThreads, more});
}

int64_t window_reach(const ConvShape& shape, int64_t elements, int64_t more) {
  return std::max({image_elements(shape), shape.kernel_elements(), elements + kThreads, more});
}

}  // namespace meshtrain::gpu
