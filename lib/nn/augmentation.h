// Shared by the random layers over images. Random numbers are a function of (seed, path, step,
// sample), so they are the same on every mesh.
// Source: Keras 3 layers/preprocessing/image_preprocessing.
#pragma once

#include <functional>

#include "nn/colors.h"
#include "nn/spatial.h"

namespace meshtrain {

struct DrawRange {
  double low = 0, high = 0;
};

// The argument `value_range`, in any order; null: that of bytes.
PixelRange value_range_of(const ConfigObject& layer);

// A random change of images (N, H, W, C) while training; the identity at inference.
class AugmentationLayer : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override;
  ValueId call_last(CallContext& context, ValueId x) override;

  virtual ValueId changed(CallContext& context, ValueId x) const = 0;
  virtual void check_arguments(Diagnostics&) const {}
  PixelRange value_range() const { return value_range_of(config_); }

  // A number f is the interval [max(-|f|, low), |f|]; a list is [a, b] in any order.
  DrawRange interval(std::string_view argument, double low) const;
  // Reports (E113) numbers outside of [low, high]; a list needs only to overlap it when `overlap`,
  // as in Keras.
  void check_interval(std::string_view argument, double low, double high, bool overlap,
                      Diagnostics& diagnostics) const;

  // One number per image, (N, 1, 1, 1).
  ValueId draw(CallContext& context, ValueId x, DrawRange range) const;
  ValueId draw_in_float32(CallContext& context, ValueId x, DrawRange range) const;
  // bool (N, 1, 1, 1): true with a probability that is drawn from `range` for each image.
  ValueId draw_chance(CallContext& context, ValueId x, DrawRange range) const;
};

// A layer that takes pixels from other places. Masks can follow the images of their batch.
class MovingLayer : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

  // What moves an array (N, H, W, C) beside the images; with `nearest` no pixels are mixed.
  using Move = std::function<ValueId(ValueId x, bool nearest)>;
  // Draws the move of these images.
  virtual Move draw_move(CallContext& context, ValueId images) const = 0;

 protected:
  ValueId changed(CallContext& context, ValueId x) const final {
    return draw_move(context, x)(x, false);
  }
};

}  // namespace meshtrain
