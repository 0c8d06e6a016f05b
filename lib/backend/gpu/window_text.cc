#include "backend/gpu/window_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/command.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

template <class Shape>
std::string make_text(const Shape& shape, bool of_input, int64_t images, int64_t columns,
                      int64_t reach) {
  const std::array<int64_t, 3>& pixels = of_input ? shape.input : shape.output;
  const int64_t elements = images * pixels[0] * pixels[1] * pixels[2] * columns;
  std::string text = index_types(std::max(reach, elements + kThreads));
  const auto add = [&](char name, const std::array<int64_t, 3>& values) {
    for (size_t d = 0; d < values.size(); ++d)
      text += constant_line("int", fmt::format("{}{}", name, d), values[d]);
  };
  add('I', shape.input);
  add('O', shape.output);
  add('K', shape.cells);
  add('S', shape.strides);
  add('D', shape.dilations);
  add('P', shape.pads);
  add('N', pixels);
  return text + constant_line("U", "elements", elements);
}

}  // namespace

std::string window_text(const PoolShape& shape, bool of_input, int64_t images, int64_t columns,
                        int64_t reach) {
  const int64_t item = static_cast<int64_t>(dtype_size(shape.dtype));
  return make_text(shape, of_input, images, columns,
                   std::max({shape.input_bytes() / item, shape.output_bytes() / item, reach}));
}

std::string window_text(const ConvShape& shape, bool of_input, int64_t images, int64_t columns,
                        int64_t reach) {
  return make_text(
      shape, of_input, images, columns,
      std::max({shape.input_bytes() / shape.item_size(), shape.output_bytes() / shape.item_size(),
                shape.kernel_elements(), reach}));
}

}  // namespace meshtrain::gpu
