// Noise while training, the identity at inference: Dropout, SpatialDropout, AlphaDropout,
// GaussianNoise, GaussianDropout. Source: Keras 3 layers/regularization.
#include <algorithm>
#include <cmath>

#include "nn/random.h"
#include "nn/spatial.h"

namespace meshtrain {
namespace {

class NoiseLayer : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    const ValueId x = to_compute(context, inputs[0]);
    return context.training ? with_noise(context, x) : x;
  }

 protected:
  virtual ValueId with_noise(CallContext& context, ValueId x) const = 0;
};

// x + N(0, stddev).
class GaussianNoise : public NoiseLayer {
 public:
  using NoiseLayer::NoiseLayer;

 protected:
  ValueId with_noise(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const double stddev = config_.number("stddev");
    return stddev == 0 ? x
                       : b.add(x, b.mul(random_normal(context, b.shape(x), seed(context)), stddev));
  }
};

// x N(1, sqrt(rate / (1 - rate))).
class GaussianDropout : public NoiseLayer {
 public:
  using NoiseLayer::NoiseLayer;

 protected:
  ValueId with_noise(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const double rate = config_.number("rate");
    if (rate == 0) {
      return x;
    }
    const ValueId noise =
        b.mul(random_normal(context, b.shape(x), seed(context)), std::sqrt(rate / (1 - rate)));
    return b.mul(x, b.add(noise, 1.0));
  }
};

// A layer whose argument `noise_shape` is the shape of its mask: null for the input's size, 1 to
// share.
class MaskLayer : public NoiseLayer {
 public:
  using NoiseLayer::NoiseLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output) || !config_.has("noise_shape")) {
      return output;
    }
    const std::vector<int64_t> noise = config_.arg("noise_shape").integers();
    bool fits = noise.size() == output.size();
    for (size_t i = 0; fits && i < noise.size(); ++i) {
      fits = noise[i] == kUnknownDim || noise[i] == 1 || noise[i] == output[i];
    }
    if (!fits) {
      argument_error(diagnostics, "noise_shape",
                     fmt::format("is {}, which does not broadcast to its input {}",
                                 shape_string(noise), shape_string(output)))
          .help("one entry per dimension, batch included: null for the input's size, 1 to share");
    }
    return output;
  }

 protected:
  Shape mask_shape(const Shape& input) const {
    if (!config_.has("noise_shape")) {
      return input;
    }
    Shape shape = config_.arg("noise_shape").integers();
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i] = shape[i] == kUnknownDim ? input[i] : shape[i];
    }
    return shape;
  }
};

// Each element of the mask is kept with probability 1 - rate and then scaled by 1 / (1 - rate). The
// mask is a function of (seed, path, step, element): no state, no seed_generator variable.
ValueId masked(CallContext& context, ValueId x, double rate, int64_t seed, Shape mask) {
  Builder& b = context.builder;
  return rate == 0   ? x
         : rate == 1 ? b.constant(0, b.dtype(x), b.shape(x))
                     : b.dropout(x, rate, context.step, seed, std::move(mask));
}

class Dropout : public MaskLayer {
 public:
  using MaskLayer::MaskLayer;

 protected:
  ValueId with_noise(CallContext& context, ValueId x) const override {
    return masked(context, x, config_.number("rate"), seed(context),
                  mask_shape(context.builder.shape(x)));
  }
};

// Dropped elements become SELU's lower limit; an affine map then restores mean and variance. G.
// Klambauer et al., "Self-normalizing neural networks", 2017.
class AlphaDropout : public MaskLayer {
 public:
  using MaskLayer::MaskLayer;

 protected:
  ValueId with_noise(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const double rate = config_.number("rate");
    if (rate == 0) {
      return x;
    }
    const double lowest = -1.6732632423543772848 * 1.0507009873554804934;
    const double a = 1 / std::sqrt((1 - rate) * (1 + rate * lowest * lowest));
    const ValueId dropped = random_chance(context, mask_shape(b.shape(x)), seed(context), rate);
    const ValueId kept = b.select(dropped, b.constant(lowest, b.dtype(x)), x);
    return b.add(b.mul(kept, a), -a * lowest * rate);
  }
};

// Dropout of whole channels.
class SpatialDropout : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics&) override { return input; }

  ValueId call_last(CallContext& context, ValueId x) override {
    if (!context.training) {
      return x;
    }
    Shape mask = context.builder.shape(x);
    std::fill(mask.begin() + 1, mask.end() - 1, 1);
    return masked(context, x, config_.number("rate"), seed(context), std::move(mask));
  }
};

}  // namespace

std::vector<LayerEntry> noise_layers() {
  return {{"Dropout", make_as<Dropout>},
          {"SpatialDropout1D", make_as<SpatialDropout>},
          {"SpatialDropout2D", make_as<SpatialDropout>},
          {"SpatialDropout3D", make_as<SpatialDropout>},
          {"AlphaDropout", make_as<AlphaDropout>},
          {"GaussianNoise", make_as<GaussianNoise>},
          {"GaussianDropout", make_as<GaussianDropout>}};
}

}  // namespace meshtrain
