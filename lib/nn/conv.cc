// Conv1D/2D/3D, DepthwiseConv and SeparableConv: cross-correlations. Source: Keras 3
// layers/convolutional.
#include "nn/conv.h"

#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"

namespace meshtrain {

bool ConvLayer::read_strict_window(Diagnostics& diagnostics) {
  if (!read_window(kKernelSize, diagnostics)) {
    return false;
  }
  const int64_t stride = *std::max_element(strides_.begin(), strides_.end());
  const int64_t dilation = *std::max_element(dilations_.begin(), dilations_.end());
  if (stride > 1 && dilation > 1) {
    argument_error(
        diagnostics, "dilation_rate",
        fmt::format("is {} with strides of {}: only one of them may be above 1", dilation, stride))
        .help("set `strides` or `dilation_rate` to 1, as in Keras");
    return false;
  }
  return true;
}

void ConvLayer::add_bias(int64_t channels) {
  bias_ = config_.boolean("use_bias") ? add_weight("bias", {channels}) : kNone;
}

ValueId ConvLayer::plus_bias(CallContext& context, ValueId y) const {
  return bias_ == kNone ? y : context.builder.add(y, context.weight(bias_));
}

Shape ConvLayer::build(std::span<const Shape> inputs, Diagnostics& diagnostics) {
  const Shape output = SpatialLayer::build(inputs, diagnostics);
  return is_failed(output) ? output : activated_shape(inputs, output, diagnostics);
}

ValueId ConvLayer::call(CallContext& context, std::span<const ValueId> inputs) {
  return add_activation(context.builder, config_.arg("activation"),
                        SpatialLayer::call(context, inputs));
}

Shape ConvLayer::kernel_shape(int64_t in, int64_t out) const {
  Shape shape = cells_;
  shape.push_back(in);
  shape.push_back(out);
  return shape;
}

ValueId depthwise(Builder& b, ValueId x, ValueId kernel, const Window& window) {
  Shape shape = b.shape(kernel);
  const int64_t filters = shape[shape.size() - 2] * shape.back();
  shape[shape.size() - 2] = 1;
  shape.back() = filters;
  return b.conv(x, b.reshape(kernel, shape), window);
}

namespace {

// kernel (k..., in / groups, filters), bias (filters).
class Conv : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_strict_window(diagnostics)) {
      return failed_shape();
    }
    const int64_t filters = config_.integer("filters");
    const int64_t groups = config_.integer("groups");
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
    kernel_ = add_weight("kernel", kernel_shape(channels / groups, filters));
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

class DepthwiseConv : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_window(kKernelSize, diagnostics)) {
      return failed_shape();
    }
    const int64_t multiplier = config_.integer("depth_multiplier");
    const Shape output = fit_window(input, input.back() * multiplier, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    kernel_ = add_weight("kernel", kernel_shape(input.back(), multiplier));
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
class SeparableConv : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_window(kKernelSize, diagnostics)) {
      return failed_shape();
    }
    const int64_t multiplier = config_.integer("depth_multiplier");
    const int64_t filters = config_.integer("filters");
    const Shape output = fit_window(input, filters, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    depthwise_ = add_weight("depthwise_kernel", kernel_shape(input.back(), multiplier));
    Shape pointwise(rank(), 1);
    pointwise.insert(pointwise.end(), {input.back() * multiplier, filters});
    pointwise_ = add_weight("pointwise_kernel", pointwise);
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
