// Shared by layers over images (N, spatial..., C): reading arguments that may be one number or one
// per spatial dimension, checking the input, and data_format.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "nn/layers.h"

namespace meshtrain {

// A layer over 1 to 3 spatial dimensions, as many as its class name says ("Conv2D"), else 2. What
// derives from it sees channels last only: channels_first is transposed on the way in and out.
class SpatialLayer : public ConfiguredLayer {
 public:
  explicit SpatialLayer(const ConfigObject& config);
  SpatialLayer(const ConfigObject& config, size_t rank) : ConfiguredLayer(config), rank_(rank) {}
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override;
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override;
  DType output_dtype(std::span<const DType> inputs) const override;

 protected:
  // Input and output (N, spatial..., C) with sizes known but the batch; failed_shape() on errors.
  virtual Shape build_last(const Shape& input, Diagnostics& diagnostics) = 0;
  virtual ValueId call_last(CallContext& context, ValueId x) = 0;
  // True for layers that only move elements: integers are not converted.
  virtual bool keeps_integers() const { return false; }
  // Whether the output has the input's rank and its channels move back.
  virtual bool keeps_rank() const { return true; }

  size_t rank() const { return rank_; }  // spatial dimensions
  bool channels_first() const;
  // One number per spatial dimension; reports a wrong count (E113) and returns nothing. Null:
  // empty.
  std::optional<std::vector<int64_t>> per_dimension(std::string_view argument,
                                                    Diagnostics& diagnostics) const;
  // (before, after) of each spatial dimension, from n, [a, b] (one each; in 1D before and after) or
  // [[a, b], [c, d]].
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  std::optional<Pairs> pairs(std::string_view argument, Diagnostics& diagnostics) const;
  // E120 with the input as the user wrote it.
  Diagnostic& input_error(Diagnostics& diagnostics, std::string_view what) const;

 private:
  size_t rank_;
  Shape written_input_;  // of the last build()
};

// The windows of an axis of `size` cells, as Keras' padding says: valid, same or causal.
struct AxisWindow {
  int64_t before = 0, after = 0;  // padding
  int64_t outputs = 0;            // less than 1: the window does not fit
};
AxisWindow axis_window(std::string_view padding, int64_t size, int64_t cells, int64_t stride,
                       int64_t dilation);

// The largest or the mean of windows [floor(i n / o), ceil((i + 1) n / o)), i < o, of x
// (N, spatial..., C), along each dimension in turn: the largest of largest ones is the largest, and
// the mean of means over a product of intervals is its mean. `sizes`: o of each dimension.
ValueId adaptive_pool(Builder& builder, ValueId x, const std::vector<int64_t>& sizes, bool largest);

// A layer with windows over the spatial dimensions: convolutions and pools. Their arguments are
// `strides` (null: as large as the window), `dilation_rate` (absent: 1) and `padding`.
class WindowLayer : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  // Reads the arguments, `cells` the one that is the size of the window; reports wrong counts.
  bool read_window(std::string_view cells, Diagnostics& diagnostics);
  // Output of the windows over `input`, with `channels` channels; reports a window larger than the
  // input.
  Shape fit_window(const Shape& input, int64_t channels, Diagnostics& diagnostics) const;
  // The windows with their padding over an input; a layer may be called on inputs of several sizes.
  Window window_at(const Shape& input) const;

  std::vector<int64_t> cells_, strides_, dilations_;

 private:
  std::string_view cells_argument_;
};

}  // namespace meshtrain
