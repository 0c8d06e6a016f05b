// Shared by the kernels of convolutions: regions of images, padded and contiguous.
#pragma once

#include <array>
#include <vector>

#include "backend/cpu/conv.h"

namespace meshtrain::cpu {

using Index3 = std::array<int64_t, 3>;

// How an image (sizes..., channels) is read: in place, or copied box by box. In a copy each channel
// is there `repeat` times and a pixel takes `pitch` elements, zeros at its end.
struct BoxReader {
  Index3 image{1, 1, 1};
  int64_t channels = 1, repeat = 1, pitch = 1;
  int64_t item_size = 4;
  bool in_place = false;  // every box is inside of the image and needs no change of pixels

  // Elements from one index to the next along each dimension, in boxes of at most `largest`.
  Index3 steps(const Index3& largest) const;
  size_t scratch_bytes(const Index3& largest) const;
  // The box of `size` that begins at `low`, zeros where it reaches out of the image: its first
  // element. `largest` says where rows begin in the copy.
  const std::byte* read(const std::byte* image_data, const Index3& low, const Index3& size,
                        const Index3& largest, std::byte* scratch) const;

 private:
  void copy_pixels(const std::byte* from, std::byte* to, int64_t count) const;
};

// Appends [begin, end), or extends the last access when that ends at `begin`.
void add_access(std::vector<Access>& out, const std::byte* begin, int64_t bytes, bool is_write);

// Whether it is a convolution of one cell, stride 1 and no padding: pixel by pixel.
bool is_pixelwise(const ConvShape& shape);
// Of such a one x and y with all pixels as one line; others as they are.
ConvShape flattened(ConvShape shape);

// A run of adjacent images: [begin, end).
struct Run {
  size_t begin, end;
  size_t size() const { return end - begin; }
};
// `is_next(i)`: whether item i continues the run of item i - 1.
template <class IsNext>
std::vector<Run> find_runs(size_t count, const IsNext& is_next) {
  std::vector<Run> runs;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && is_next(i))
      runs.back().end = i + 1;
    else
      runs.push_back({i, i + 1});
  }
  return runs;
}

// Images whose inputs and output gradients follow each other in memory.
std::vector<Run> image_runs(const ConvShape& shape, const WgradJob& job);

int64_t round_up(int64_t value, int64_t unit);
int64_t ceil_div(int64_t a, int64_t b);

}  // namespace meshtrain::cpu
