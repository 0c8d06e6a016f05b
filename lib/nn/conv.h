// Shared by the convolution layers: Keras 3 layers/convolutional/base_conv.py.
#pragma once

#include "nn/spatial.h"

namespace meshtrain {

// A WindowLayer with a kernel, perhaps a bias, and an activation.
class ConvLayer : public WindowLayer {
 public:
  using WindowLayer::WindowLayer;
  // As SpatialLayer; then the activation, which may be along an axis of the output as it is.
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override;
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override;

 protected:
  // Reads the window; reports strides beside dilation, which Keras refuses for Conv and
  // Conv*Transpose.
  bool read_strict_window(Diagnostics& diagnostics);
  void add_bias(int64_t channels);
  ValueId plus_bias(CallContext& context, ValueId y) const;
  // (kernel_size..., in, out).
  Shape kernel_shape(int64_t in, int64_t out) const;

 private:
  int bias_ = kNone;
};

// A convolution with as many groups as channels: output c * multiplier + m is filter m of channel
// c. The stored kernel (k..., in, multiplier) is conv's (k..., 1, in * multiplier).
ValueId depthwise(Builder& builder, ValueId x, ValueId kernel, const Window& window);

// A convolution whose transpose takes (N, spatial..., C) to `output`, with Keras' choice of what is
// cropped. `output_padding`: one per dimension, or empty for Keras' own rule.
struct TransposedWindow {
  Window window;
  Shape output;  // (N, spatial..., filters)
};
TransposedWindow transposed_window(const Shape& input, bool same, const std::vector<int64_t>& cells,
                                   const std::vector<int64_t>& strides,
                                   const std::vector<int64_t>& dilations,
                                   const std::vector<int64_t>& output_padding, int64_t filters);

inline constexpr std::string_view kKernelSize = "kernel_size";

}  // namespace meshtrain
