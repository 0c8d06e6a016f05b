// Convolutions over images with channels last, float32 and float64.
//
// float32 goes to the code that oneDNN generates for a shape (conv_dnnl.h; measured 5 to 50% faster
// at nearly every shape, bench_conv shows it). The loops of simd/conv.cc compute float64, the few
// cases in which they are faster, shapes that oneDNN has no such code for, and batches of so few
// images that these must be cut in parts for the workers. They read operands where they lie; only
// images that need padding are copied, one at a time, into the scratch of a worker.
#pragma once

#include <array>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// x (input..., channels), kernel (cells..., channels / groups, filters), y (output..., filters):
// cell j of output i is x[i * stride + j * dilation - pad]. Missing spatial dimensions have size 1.
struct ConvShape {
  DType dtype = DType::kFloat32;
  std::array<int64_t, 3> input{1, 1, 1}, output{1, 1, 1}, cells{1, 1, 1};
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0};
  int64_t channels = 1, filters = 1, groups = 1;

  int64_t item_size() const { return static_cast<int64_t>(dtype_size(dtype)); }
  int64_t input_bytes() const;  // of one image of x
  int64_t output_bytes() const;
  int64_t kernel_elements() const;
  bool is_depthwise() const { return groups == channels && groups > 1; }
};

// One image through one kernel. Images of several devices are jobs beside each other.
struct ConvJob {
  const std::byte* from = nullptr;
  const std::byte* kernel = nullptr;
  std::byte* to = nullptr;
};
// from: images of x, to: of y.
KernelList make_conv(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                     ScratchAllocator& scratch);
// The transpose. from: images of y's gradient, to: of x's.
KernelList make_conv_dgrad(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                           ScratchAllocator& scratch);

// The gradient of one kernel, summed over these images of x and of y's gradient.
struct WgradJob {
  struct Images {
    const std::byte* x = nullptr;
    const std::byte* dy = nullptr;
  };
  std::vector<Images> images;
  std::byte* to = nullptr;
};
// All jobs have the same number of images.
KernelList make_conv_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
