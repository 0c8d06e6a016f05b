// Pools and their gradients over images with channels last, float32 and float64.
#pragma once

#include <array>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

enum class PoolOp : int { kMax, kAverage, kMaxGrad, kAverageGrad };

// x (input..., channels), y (output..., channels); cell j of output i is
// x[i * stride + j * dilation - pad]. Missing spatial dimensions have size 1.
struct PoolShape {
  DType dtype = DType::kFloat32;
  std::array<int64_t, 3> input{1, 1, 1}, output{1, 1, 1}, cells{1, 1, 1};
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0};
  int64_t channels = 1;

  int64_t input_bytes() const;  // of one image
  int64_t output_bytes() const;
};

// One image; those that the op does not have are null.
struct PoolJob {
  const std::byte* x = nullptr;   // kMax, kAverage, kMaxGrad
  const std::byte* dy = nullptr;  // the gradients
  std::byte* to = nullptr;        // y, or the gradient of x
};

KernelPtr make_pool(PoolOp op, const PoolShape& shape, std::vector<PoolJob> jobs);

}  // namespace meshtrain::cpu
