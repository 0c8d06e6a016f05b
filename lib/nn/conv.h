// What the convolution layers share (keras-semantics 5.3).
#pragma once

#include <string>

#include "nn/spatial.h"

namespace meshtrain {

// strides, dilation_rate, kernel_size, use_bias and activation.
class WindowLayer : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;
  // As SpatialLayer; then the activation, which may be along an axis of the output as it is.
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override;
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override;

 protected:
  // Reads kernel_size, strides and dilation_rate; reports wrong counts and, if `strict` (as Keras
  // for Conv and Conv*Transpose), strides beside dilation.
  bool read_window(bool strict, Diagnostics& diagnostics);
  // Output of the windows over `input`, with `channels` channels; reports a window larger than the
  // input.
  Shape fit_window(const Shape& input, int64_t channels, Diagnostics& diagnostics) const;
  // The windows with their padding over an input; a layer may be called on inputs of several sizes.
  Window window_at(const Shape& input) const;
  void add_bias(int64_t channels);
  ValueId plus_bias(CallContext& context, ValueId y) const;
  // (kernel_size..., in, out).
  Shape kernel_shape(int64_t in, int64_t out) const;

  std::vector<int64_t> cells_;  // kernel_size
  std::vector<int64_t> strides_, dilations_;
  int bias_ = kNone;
};

}  // namespace meshtrain
