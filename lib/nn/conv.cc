// Conv1D/2D/3D, DepthwiseConv and SeparableConv: cross-correlations. Source: Keras 3
// layers/convolutional.
#include "nn/conv.h"

#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"

namespace meshtrain {

bool WindowLayer::read_window(bool strict, Diagnostics& diagnostics) {
  const auto cells = per_dimension("kernel_size", diagnostics);
  const auto strides = per_dimension("strides", diagnostics);
  const auto dilations = per_dimension("dilation_rate", diagnostics);
  if (!cells || !strides || !dilations) {
    return false;
  }
  cells_ = *cells;
  strides_ = *strides;
  dilations_ = *dilations;
  const auto largest = [](const std::vector<int64_t>& v) {
    return *std::max_element(v.begin(), v.end());
  };
  if (strict && largest(*strides) > 1 && largest(*dilations) > 1) {
    argument_error(diagnostics, "dilation_rate",
                   fmt::format("is {} beside strides of {}: only one of them may be above 1",
                               largest(*dilations), largest(*strides)))
        .help("set `strides` or `dilation_rate` to 1, as in Keras");
    return false;
  }
  return true;
}

Shape WindowLayer::fit_window(const Shape& input, int64_t channels,
                              Diagnostics& diagnostics) const {
  const std::string& padding = config_.string("padding");
  Shape output = {input[0]};
  for (size_t d = 0; d < rank(); ++d) {
    const AxisWindow axis =
        axis_window(padding, input[d + 1], cells_[d], strides_[d], dilations_[d]);
    if (axis.outputs < 1) {
      input_error(diagnostics,
                  fmt::format("a window of {} cells is larger than its dimension of {}",
                              (cells_[d] - 1) * dilations_[d] + 1, input[d + 1]))
          .help("use `padding: same`, or a smaller kernel_size");
      return failed_shape();
    }
    output.push_back(axis.outputs);
  }
  output.push_back(channels);
  return output;
}

Window WindowLayer::window_at(const Shape& input) const {
  Window window{strides_, dilations_, {}, {}};
  for (size_t d = 0; d < rank(); ++d) {
    const AxisWindow axis =
        axis_window(config_.string("padding"), input[d + 1], cells_[d], strides_[d], dilations_[d]);
    window.pads_before.push_back(axis.before);
    window.pads_after.push_back(axis.after);
  }
  return window;
}

void WindowLayer::add_bias(int64_t channels) {
  if (config_.boolean("use_bias")) {
    bias_ =
        add_weight("bias", {channels}, dtype, make_initializer(config_.arg("bias_initializer")));
  }
}

ValueId WindowLayer::plus_bias(CallContext& context, ValueId y) const {
  return bias_ == kNone ? y : context.builder.add(y, context.weight(bias_));
}

Shape WindowLayer::build(std::span<const Shape> inputs, Diagnostics& diagnostics) {
  const Shape output = SpatialLayer::build(inputs, diagnostics);
  return is_failed(output) ? output : activated_shape(inputs, output, diagnostics);
}

ValueId WindowLayer::call(CallContext& context, std::span<const ValueId> inputs) {
  return add_activation(context.builder, config_.arg("activation"),
                        SpatialLayer::call(context, inputs));
}

Shape WindowLayer::kernel_shape(int64_t in, int64_t out) const {
  Shape shape = cells_;
  shape.push_back(in);
  shape.push_back(out);
  return shape;
}

namespace {

// kernel (k..., in / groups, filters), bias (filters).
class Conv : public WindowLayer {
 public:
  using WindowLayer::WindowLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_window(true, diagnostics)) {
      return failed_shape();
    }
    const int64_t filters = config_.integer("filters");
    const int64_t groups = integer_or(&config_, "groups", 1);
    const int64_t channels = input.back();
    if (filters % groups != 0) {
      argument_error(diagnostics, "groups",
                     fmt::format("is {}, which does not divide the {} filters", groups, filters))
          .help("filters must be a multiple of groups");
      return failed_shape();
    }
    if (channels % groups != 0) {
      input_error(diagnostics,
                  fmt::format("{} groups do not divide its {} channels", groups, channels))
          .help("the channels of its input must be a multiple of `groups`");
      return failed_shape();
    }
    const Shape output = fit_window(input, filters, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    kernel_ = add_weight("kernel", kernel_shape(channels / groups, filters), dtype,
                         make_initializer(config_.arg("kernel_initializer")));
    add_bias(filters);
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    return plus_bias(context, b.conv(x, context.weight(kernel_), window_at(b.shape(x))));
  }

 private:
  int kernel_ = kNone;
};

// A convolution with as many groups as channels: output c * multiplier + m is filter m of channel
// c. The stored kernel (k..., in, multiplier) is conv's (k..., 1, in * multiplier).
ValueId depthwise(Builder& b, ValueId x, ValueId kernel, const Window& window) {
  Shape shape = b.shape(kernel);
  const int64_t filters = shape[shape.size() - 2] * shape.back();
  shape[shape.size() - 2] = 1;
  shape.back() = filters;
  return b.conv(x, b.reshape(kernel, shape), window);
}

class DepthwiseConv : public WindowLayer {
 public:
  using WindowLayer::WindowLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_window(false, diagnostics)) {
      return failed_shape();
    }
    const int64_t multiplier = config_.integer("depth_multiplier");
    const Shape output = fit_window(input, input.back() * multiplier, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    kernel_ = add_weight("kernel", kernel_shape(input.back(), multiplier), dtype,
                         make_initializer(config_.arg("depthwise_initializer")));
    add_bias(output.back());
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    return plus_bias(context, depthwise(b, x, context.weight(kernel_), window_at(b.shape(x))));
  }

 private:
  int kernel_ = kNone;
};

// Depthwise, then a product over the channels at each position.
class SeparableConv : public WindowLayer {
 public:
  using WindowLayer::WindowLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_window(false, diagnostics)) {
      return failed_shape();
    }
    const int64_t multiplier = config_.integer("depth_multiplier");
    const int64_t filters = config_.integer("filters");
    const Shape output = fit_window(input, filters, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    depthwise_ = add_weight("depthwise_kernel", kernel_shape(input.back(), multiplier), dtype,
                            make_initializer(config_.arg("depthwise_initializer")));
    Shape pointwise(rank(), 1);
    pointwise.insert(pointwise.end(), {input.back() * multiplier, filters});
    pointwise_ = add_weight("pointwise_kernel", pointwise, dtype,
                            make_initializer(config_.arg("pointwise_initializer")));
    add_bias(filters);
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    x = depthwise(b, x, context.weight(depthwise_), window_at(b.shape(x)));
    const std::vector<int64_t> ones(rank(), 1), zeros(rank(), 0);
    return plus_bias(context,
                     b.conv(x, context.weight(pointwise_), Window{ones, ones, zeros, zeros}));
  }

 private:
  int depthwise_ = kNone;
  int pointwise_ = kNone;
};

}  // namespace

std::vector<LayerEntry> conv_layers() {
  return {{"Conv1D", make_as<Conv>},
          {"Conv2D", make_as<Conv>},
          {"Conv3D", make_as<Conv>},
          {"DepthwiseConv1D", make_as<DepthwiseConv>},
          {"DepthwiseConv2D", make_as<DepthwiseConv>},
          {"SeparableConv1D", make_as<SeparableConv>},
          {"SeparableConv2D", make_as<SeparableConv>}};
}

}  // namespace meshtrain
