// Equalization: values of a channel become their ranks. Source: Keras 3
// layers/preprocessing/image_preprocessing/equalization.py.
#include <limits>

#include "nn/augmentation.h"

namespace meshtrain {
namespace {

// A value in bytes becomes the part of the batch's values at or below its bin, each channel by
// itself. As in Keras all images of a batch have one histogram, and a channel of one bin stays.
class Equalization : public PixelLayer {
 public:
  using PixelLayer::PixelLayer;

 protected:
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const int64_t channels = b.shape(x)[3];
    const ValueId bytes = to_range(b, x, value_range(), kBytes);
    const ValueId counts = histogram(b, bytes);
    const ValueId table = b.reshape(levels(b, counts), {channels * bins()});
    const ValueId places = b.mul(b.div(bytes, 255.0), static_cast<double>(bins() - 1));
    const ValueId equalized = b.cast(b.gather_rows(table, cells(b, places)), b.dtype(x));
    const ValueId used = b.reduce_sum(
        b.cast(b.binary("gt", counts, constant_like(b, counts, 0)), b.dtype(counts)), {1});
    const ValueId is_flat = b.binary("le", used, constant_like(b, used, 1));
    const ValueId result = b.select(b.reshape(is_flat, {1, 1, 1, channels}), bytes, equalized);
    return to_range(b, result, kBytes, value_range());
  }

 private:
  int64_t bins() const { return config_.integer("bins"); }

  // Rows of a table of all channels' bins, for numbers of bins (N, H, W, C), cut to integers.
  ValueId cells(Builder& b, ValueId places) const {
    const ValueId bin = b.cast(b.clamp(places, 0, static_cast<double>(bins() - 1)), DType::kInt32);
    const ValueId channel = b.iota({1, 1, 1, b.shape(places)[3]}, 3, DType::kInt32);
    return b.add(bin, b.mul(channel, b.constant(static_cast<double>(bins()), DType::kInt32)));
  }

  // How many values of each channel are in each bin: float64 (C, bins), which counts exactly.
  ValueId histogram(Builder& b, ValueId bytes) const {
    const ValueId single = b.cast(bytes, DType::kFloat32);  // as Keras, whatever the policy
    const ValueId places = b.div(b.mul(single, static_cast<double>(bins() - 1)), 255.0);
    const int64_t channels = b.shape(bytes)[3];
    const ValueId ones = b.constant(1, DType::kFloat64, b.shape(bytes));
    return b.reshape(b.scatter_add_rows(ones, cells(b, places), channels * bins()),
                     {channels, bins()});
  }

  // What each bin becomes: 0 to 255, by the counts up to it beyond those of the first one.
  ValueId levels(Builder& b, ValueId counts) const {
    const ValueId below = b.cumsum(counts, 1);
    const ValueId most = constant_like(b, below, std::numeric_limits<float>::max());
    const ValueId first = b.reduce_min(
        b.select(b.binary("gt", below, constant_like(b, below, 0)), below, most), {1}, true);
    const ValueId beyond = b.sub(b.slice(below, 1, bins() - 1, bins()), first);
    const ValueId divisor = b.maximum(beyond, 1.0);  // counts are whole: only 0 is below
    return b.clamp(b.unary("round", b.div(b.mul(b.sub(below, first), 255.0), divisor)), 0, 255);
  }
};

}  // namespace

std::vector<LayerEntry> equalization_layers() {
  return {{"Equalization", make_as<Equalization>}};
}

}  // namespace meshtrain
