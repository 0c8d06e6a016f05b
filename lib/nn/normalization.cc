// Normalization within each sample: LayerNormalization, GroupNormalization, RMSNormalization,
// UnitNormalization. Computed in at least float32. Source: Keras 3 layers/normalization.
#include "nn/layers.h"

namespace meshtrain {
namespace {

// A layer with gamma and beta, which `scale` and `center` ask for. Nothing is cast before its
// float32 arithmetic.
class AffineLayer : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;
  bool casts_inputs() const override { return false; }
  bool casts_weights() const override { return false; }

 protected:
  void add_gamma_and_beta(const Shape& sizes) {
    gamma_ = config_.boolean("scale") ? add_weight("gamma", sizes) : kNone;
    beta_ = config_.boolean("center") ? add_weight("beta", sizes) : kNone;
  }

  // y gamma + beta, these laid out as `spread`.
  ValueId affine(CallContext& context, ValueId y, const Shape& spread) const {
    Builder& b = context.builder;
    const auto weight = [&](int index) {
      return b.reshape(b.cast(context.weight(index), b.dtype(y)), spread);
    };
    if (gamma_ != kNone) {
      y = b.mul(y, weight(gamma_));
    }
    return beta_ == kNone ? y : b.add(y, weight(beta_));
  }

 private:
  int gamma_ = kNone;
  int beta_ = kNone;
};

class LayerNormalization : public AffineLayer {
 public:
  using AffineLayer::AffineLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = AxesLayer::build(inputs, diagnostics);
    if (!is_failed(output)) {
      add_gamma_and_beta(sizes(output));
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    const Shape shape = b.shape(x);
    const ValueId y = standardized(b, x, axes(shape.size()), config_.number("epsilon"));
    return to_compute(context, affine(context, y, spread_sizes(shape)));
  }
};

// x / sqrt(mean x^2 + epsilon) * scale.
class RMSNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = AxesLayer::build(inputs, diagnostics);
    if (!is_failed(output)) {
      scale_ = add_weight("scale", sizes(output), variable_dtype, filled_with(1));
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    const Shape shape = b.shape(x);
    const ValueId mean = b.reduce_mean(b.square(x), axes(shape.size()), true);
    const ValueId y = b.mul(x, b.unary("rsqrt", b.add(mean, config_.number("epsilon"))));
    const ValueId scale = b.cast(context.weight(scale_), b.dtype(y));
    return to_compute(context, b.mul(y, b.reshape(scale, spread_sizes(shape))));
  }

 private:
  int scale_ = kNone;
};

// x / max(length, 1e-12) over the axes.
class UnitNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    const ValueId sum = b.reduce_sum(b.square(x), axes(b.shape(x).size()), true);
    return to_compute(context, b.mul(x, inverse_length(b, sum, 1e-24)));
  }
};

// Contiguous groups of channels; statistics of each sample and group over everything else; gamma
// and beta per channel.
class GroupNormalization : public AffineLayer {
 public:
  using AffineLayer::AffineLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = AxesLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    const Shape channels = sizes(output);
    const int64_t groups = config_.integer("groups");
    if (groups == 0) {
      argument_error(diagnostics, "groups", "is 0")
          .help("write the number of groups, or -1 for one per channel");
      return failed_shape();
    }
    if (groups > 0 && channels[0] % groups != 0) {
      shape_error(diagnostics, inputs,
                  fmt::format("{} groups do not divide its {} channels", groups, channels[0]))
          .help("set `groups` to a divisor of the channels (the default is 32), or to -1");
      return failed_shape();
    }
    add_gamma_and_beta(channels);
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    const Shape shape = b.shape(x);
    const auto axis = static_cast<size_t>(axes(shape.size())[0]);
    const int64_t groups = config_.integer("groups") < 0 ? shape[axis] : config_.integer("groups");
    const auto in_groups = [&](Shape whole) {
      whole[axis] /= groups;
      whole.insert(whole.begin() + static_cast<std::ptrdiff_t>(axis), groups);
      return whole;
    };
    std::vector<int64_t> over;
    for (size_t d = 1; d <= shape.size(); ++d) {
      if (d != axis) {
        over.push_back(static_cast<int64_t>(d));
      }
    }
    const ValueId y =
        standardized(b, b.reshape(x, in_groups(shape)), over, config_.number("epsilon"));
    return b.reshape(to_compute(context, affine(context, y, in_groups(spread_sizes(shape)))),
                     shape);
  }
};

}  // namespace

std::vector<LayerEntry> normalization_layers() {
  return {{"LayerNormalization", make_as<LayerNormalization>},
          {"RMSNormalization", make_as<RMSNormalization>},
          {"GroupNormalization", make_as<GroupNormalization>},
          {"UnitNormalization", make_as<UnitNormalization>}};
}

}  // namespace meshtrain
