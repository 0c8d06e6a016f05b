// Normalization within each sample: LayerNormalization, GroupNormalization, RMSNormalization,
// UnitNormalization. Source: Keras 3 layers/normalization; keras-semantics 5.5.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

// A layer with statistics over the axes of its argument `axis`.
class AxesLayer : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

 protected:
  // Counted from 0, ascending; reports (E120) what is outside of the rank, twice there, the batch
  // or of unknown size, and returns nothing.
  std::vector<int64_t> checked_axes(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    std::vector<int64_t> out;
    for (const int64_t given : written_axes()) {
      const auto axis = axis_in(given, inputs[0].size());
      if (!axis || *axis == 0) {
        shape_error(diagnostics, inputs, fmt::format("there is no axis {} beside the batch", given))
            .help(fmt::format("`axis` counts the batch as 0: write 1 to {}, or -1 for the last",
                              inputs[0].size() - 1));
        return {};
      }
      if (inputs[0][static_cast<size_t>(*axis)] == kUnknownDim) {
        shape_error(diagnostics, inputs, fmt::format("the size of axis {} must be known", given))
            .help("write it in the Input's `shape`");
        return {};
      }
      out.push_back(*axis);
    }
    std::sort(out.begin(), out.end());
    if (std::adjacent_find(out.begin(), out.end()) != out.end()) {
      argument_error(diagnostics, "axis", "names a dimension twice");
      return {};
    }
    return out;
  }

  std::vector<int64_t> axes(size_t rank) const {
    std::vector<int64_t> out;
    for (const int64_t given : written_axes()) {
      out.push_back(axis_in(given, rank).value());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  // A weight over the axes, to be multiplied with x of this shape.
  static ValueId along(Builder& b, ValueId weight, const Shape& shape,
                       const std::vector<int64_t>& axes) {
    Shape spread(shape.size(), 1);
    for (const int64_t axis : axes) {
      spread[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
    }
    return b.reshape(weight, spread);
  }

 private:
  std::vector<int64_t> written_axes() const {
    const ConfigValue& value = config_.arg("axis");
    return value.is_list() ? value.integers() : std::vector<int64_t>{value.integer()};
  }
};

Shape sizes_of(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape out;
  for (const int64_t axis : axes) {
    out.push_back(shape[static_cast<size_t>(axis)]);
  }
  return out;
}

// (x - mean) / sqrt(variance + epsilon) over the axes.
ValueId standardized(Builder& b, ValueId x, const std::vector<int64_t>& axes, double epsilon) {
  const ValueId centred = b.sub(x, b.reduce_mean(x, axes, true));
  const ValueId variance = b.reduce_mean(b.square(centred), axes, true);
  return b.mul(centred, b.unary("rsqrt", b.add(variance, epsilon)));
}

class LayerNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    const std::vector<int64_t> over = checked_axes(inputs, diagnostics);
    if (over.empty()) {
      return failed_shape();
    }
    const Shape sizes = sizes_of(output, over);
    if (config_.boolean("scale")) {
      gamma_ =
          add_weight("gamma", sizes, dtype, make_initializer(config_.arg("gamma_initializer")));
    }
    if (config_.boolean("center")) {
      beta_ = add_weight("beta", sizes, dtype, make_initializer(config_.arg("beta_initializer")));
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const Shape shape = b.shape(x);
    const std::vector<int64_t> over = axes(shape.size());
    ValueId y = standardized(b, x, over, config_.number("epsilon"));
    if (gamma_ != kNone) {
      y = b.mul(y, along(b, context.weight(gamma_), shape, over));
    }
    return beta_ == kNone ? y : b.add(y, along(b, context.weight(beta_), shape, over));
  }

 private:
  int gamma_ = kNone;
  int beta_ = kNone;
};

// x / sqrt(mean x^2 + epsilon) * scale.
class RMSNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    const std::vector<int64_t> over = checked_axes(inputs, diagnostics);
    if (over.empty()) {
      return failed_shape();
    }
    ConfigValue ones;
    ones.data = std::string("ones");
    scale_ = add_weight("scale", sizes_of(output, over), dtype, make_initializer(ones));
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const Shape shape = b.shape(x);
    const std::vector<int64_t> over = axes(shape.size());
    const ValueId mean = b.reduce_mean(b.square(x), over, true);
    const ValueId y = b.mul(x, b.unary("rsqrt", b.add(mean, config_.number("epsilon"))));
    return b.mul(y, along(b, context.weight(scale_), shape, over));
  }

 private:
  int scale_ = kNone;
};

// x / max(length, 1e-12) over the axes.
class UnitNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    return is_failed(output) || checked_axes(inputs, diagnostics).empty() ? failed_shape() : output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const ValueId sum = b.reduce_sum(b.square(x), axes(b.shape(x).size()), true);
    return b.mul(x, b.unary("rsqrt", b.maximum(sum, 1e-24)));
  }
};

// Contiguous groups of channels; statistics of each sample and group over everything else; gamma
// and beta per channel.
class GroupNormalization : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    const auto axis = axis_in(config_.integer("axis"), output.size());
    if (!axis || *axis == 0 || output[static_cast<size_t>(*axis)] == kUnknownDim) {
      shape_error(diagnostics, inputs,
                  fmt::format("axis {} is no dimension of known size beside the batch",
                              config_.integer("axis")))
          .help("`axis` is that of the channels: -1 for the last");
      return failed_shape();
    }
    const int64_t channels = output[static_cast<size_t>(*axis)];
    const int64_t groups = config_.integer("groups");
    if (groups == 0) {
      argument_error(diagnostics, "groups", "is 0")
          .help("write the number of groups, or -1 for one per channel");
      return failed_shape();
    }
    if (groups > 0 && channels % groups != 0) {
      shape_error(diagnostics, inputs,
                  fmt::format("{} groups do not divide its {} channels", groups, channels))
          .help("set `groups` to a divisor of the channels (the default is 32), or to -1");
      return failed_shape();
    }
    if (config_.boolean("scale")) {
      gamma_ = add_weight("gamma", {channels}, dtype,
                          make_initializer(config_.arg("gamma_initializer")));
    }
    if (config_.boolean("center")) {
      beta_ =
          add_weight("beta", {channels}, dtype, make_initializer(config_.arg("beta_initializer")));
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const Shape shape = b.shape(x);
    const auto axis = static_cast<size_t>(axis_in(config_.integer("axis"), shape.size()).value());
    const int64_t groups = config_.integer("groups") < 0 ? shape[axis] : config_.integer("groups");
    const auto in_groups = [&](Shape whole) {
      whole[axis] /= groups;
      whole.insert(whole.begin() + static_cast<std::ptrdiff_t>(axis), groups);
      return whole;
    };
    Shape per_channel(shape.size(), 1);
    per_channel[axis] = shape[axis];
    std::vector<int64_t> over;
    for (size_t d = 1; d <= shape.size(); ++d) {
      if (d != axis) {
        over.push_back(static_cast<int64_t>(d));
      }
    }
    ValueId y = standardized(b, b.reshape(x, in_groups(shape)), over, config_.number("epsilon"));
    if (gamma_ != kNone) {
      y = b.mul(y, b.reshape(context.weight(gamma_), in_groups(per_channel)));
    }
    if (beta_ != kNone) {
      y = b.add(y, b.reshape(context.weight(beta_), in_groups(per_channel)));
    }
    return b.reshape(y, shape);
  }

 private:
  int gamma_ = kNone;
  int beta_ = kNone;
};

}  // namespace

std::vector<LayerEntry> normalization_layers() {
  return {{"LayerNormalization", make_as<LayerNormalization>},
          {"RMSNormalization", make_as<RMSNormalization>},
          {"GroupNormalization", make_as<GroupNormalization>},
          {"UnitNormalization", make_as<UnitNormalization>}};
}

}  // namespace meshtrain
