#include "backend/cpu/conv_region.h"

#include <algorithm>
#include <cstring>

namespace meshtrain::cpu {

std::vector<Run> image_runs(const ConvShape& shape, const WgradJob& job) {
  return find_runs(job.images.size(), [&](size_t i) {
    const WgradJob::Images& last = job.images[i - 1];
    return job.images[i].x == last.x + shape.input_bytes() &&
           job.images[i].dy == last.dy + shape.output_bytes();
  });
}

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

bool is_pixelwise(const ConvShape& shape) {
  const Index3 ones{1, 1, 1};
  return shape.cells == ones && shape.strides == ones && shape.input == shape.output &&
         shape.pads == Index3{0, 0, 0};
}

ConvShape flattened(ConvShape shape) {
  if (!is_pixelwise(shape))
    return shape;
  shape.input = shape.output = {1, 1, shape.input[0] * shape.input[1] * shape.input[2]};
  shape.dilations = {1, 1, 1};
  return shape;
}

void add_access(std::vector<Access>& out, const std::byte* begin, int64_t bytes, bool is_write) {
  if (!out.empty() && out.back().end == begin && out.back().is_write == is_write) {
    out.back().end += bytes;
  } else {
    out.push_back({begin, begin + bytes, is_write});
  }
}

Index3 BoxReader::steps(const Index3& largest) const {
  const Index3& size = in_place ? image : largest;
  return {size[1] * size[2] * pitch, size[2] * pitch, pitch};
}

size_t BoxReader::scratch_bytes(const Index3& largest) const {
  return in_place ? 0
                  : static_cast<size_t>(
                        round_up(largest[0] * largest[1] * largest[2] * pitch * item_size, 64));
}

// The pixels of a row; pixels of the image are adjacent.
void BoxReader::copy_pixels(const std::byte* from, std::byte* to, int64_t count) const {
  const int64_t bytes = channels * item_size;
  if (repeat == 1 && pitch == channels) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  const int64_t used = channels * repeat * item_size;
  for (int64_t i = 0; i < count; ++i) {
    if (repeat == 1) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    } else {
      for (int64_t c = 0; c < channels * repeat; ++c) {
        std::memcpy(to + c * item_size, from + c / repeat * item_size,
                    static_cast<size_t>(item_size));
      }
    }
    std::memset(to + used, 0, static_cast<size_t>(pitch * item_size - used));
    from += bytes;
    to += pitch * item_size;
  }
}

const std::byte* BoxReader::read(const std::byte* image_data, const Index3& low, const Index3& size,
                                 const Index3& largest, std::byte* scratch) const {
  const int64_t pixel = channels * item_size;
  if (in_place) {
    return image_data + ((low[0] * image[1] + low[1]) * image[2] + low[2]) * pixel;
  }
  const int64_t step = pitch * item_size;
  // The pixels of a row that are left of the image, in it, and right of it.
  const int64_t left = std::clamp<int64_t>(-low[2], 0, size[2]);
  const int64_t inside = std::clamp<int64_t>(image[2] - low[2], left, size[2]) - left;
  for (int64_t z = 0; z < size[0]; ++z) {
    for (int64_t y = 0; y < size[1]; ++y) {
      std::byte* row = scratch + (z * largest[1] + y) * largest[2] * step;
      const int64_t iz = low[0] + z, iy = low[1] + y;
      if (iz < 0 || iz >= image[0] || iy < 0 || iy >= image[1] || inside == 0) {
        std::memset(row, 0, static_cast<size_t>(size[2] * step));
        continue;
      }
      std::memset(row, 0, static_cast<size_t>(left * step));
      copy_pixels(image_data + ((iz * image[1] + iy) * image[2] + low[2] + left) * pixel,
                  row + left * step, inside);
      std::memset(row + (left + inside) * step, 0,
                  static_cast<size_t>((size[2] - left - inside) * step));
    }
  }
  return scratch;
}

}  // namespace meshtrain::cpu
