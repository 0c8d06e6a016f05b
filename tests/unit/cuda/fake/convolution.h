// A convolution whose result is known.
#pragma once

#include <utility>
#include <vector>

#include "backend/gpu/command.h"
#include "fake_gpu.h"

namespace meshtrain::test {

// Three by three cells over images of 8 x 8 and 8 channels: y = conv(x, w), all ones.
struct Convolution {
  explicit Convolution(gpu::Device& device)
      : device(device),
        x(device, kImages * kPixels * 32),
        kernel(device, 9 * 8 * 8 * 4),
        y(device, kImages * kPixels * 32) {
    const std::vector<float> ones(kImages * kPixels * 8, 1);
    device.upload(x.data, ones.data(), kImages * kPixels * 32);
    device.upload(kernel.data, ones.data(), 9 * 8 * 8 * 4);
  }

  gpu::Command command() const {
    gpu::Conv conv;
    conv.images = kImages;
    ConvShape& s = conv.shape;
    s.input = s.output = {1, 8, 8};
    s.cells = {1, 3, 3};
    s.pads = {0, 1, 1};
    s.channels = s.filters = 8;
    conv.x = x.data;
    conv.kernel = kernel.data;
    conv.y = y.data;
    const auto access = [](const Memory& memory, int64_t bytes, bool is_write) {
      return Access{memory.data, memory.data + bytes, is_write};
    };
    return {conv,
            {access(x, kImages * kPixels * 32, false), access(kernel, 9 * 8 * 8 * 4, false),
             access(y, kImages * kPixels * 32, true)},
            "convolution"};
  }
  // The first pixel, which has four neighbours, itself among them; and a pixel inside.
  std::pair<float, float> results() const {
    float corner = 0, inside = 0;
    device.download(&corner, y.data, 4);
    device.download(&inside, y.data + 9 * 32, 4);
    return {corner, inside};
  }

  static constexpr std::pair<float, float> kRight = {32, 72};
  static constexpr int64_t kImages = 4, kPixels = 64;
  gpu::Device& device;
  Memory x, kernel, y;
};

}  // namespace meshtrain::test
