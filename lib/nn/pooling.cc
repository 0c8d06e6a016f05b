// Max and average pooling over windows, over everything and over a given number of windows.
// Source: Keras 3 layers/pooling.
#include "nn/masks.h"
#include "nn/spatial.h"

namespace meshtrain {
namespace {

// The largest or the mean of each window; the mean is over the cells inside of the input.
template <bool kMax>
class Pooling : public WindowLayer {
 public:
  using WindowLayer::WindowLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    return read_window("pool_size", diagnostics) ? fit_window(input, input.back(), diagnostics)
                                                 : failed_shape();
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    const Window window = window_at(b.shape(x));
    return kMax ? b.max_pool(x, cells_, window) : b.avg_pool(x, cells_, window);
  }
};

// The largest or the mean over all positions. GlobalAveragePooling1D: over the steps of a mask,
// which the input has or the second input is.
template <bool kMax>
class GlobalPooling : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_mask() || inputs.size() != 2) {
      return SpatialLayer::build(inputs, diagnostics);
    }
    const size_t steps = channels_first() ? 2 : 1;
    if (inputs[0].size() == 3 && inputs[1] != Shape{inputs[0][0], inputs[0][steps]}) {
      shape_error(diagnostics, inputs, "a mask has one flag for each step: (batch, steps)")
          .help("write `inputs: [x, mask]`, and give the mask's Input the shape [steps]");
      return failed_shape();
    }
    return SpatialLayer::build(inputs.first(1), diagnostics);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    if (!takes_mask() || inputs.size() != 2) {
      return SpatialLayer::call(context, inputs);
    }
    CallContext own = context;
    const ValueId mask = context.builder.cast(inputs[1], DType::kBool);
    own.masks = std::span(&mask, 1);
    return SpatialLayer::call(own, inputs.first(1));
  }

 protected:
  bool keeps_rank() const override { return config_.boolean("keepdims"); }
  bool takes_mask() const { return !kMax && rank() == 1; }

  Shape build_last(const Shape& input, Diagnostics&) override {
    if (!keeps_rank()) {
      return {input[0], input.back()};
    }
    Shape output(input.size(), 1);
    output[0] = input[0];
    output.back() = input.back();
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    std::vector<int64_t> axes;
    for (size_t d = 0; d < rank(); ++d) {
      axes.push_back(static_cast<int64_t>(d) + 1);
    }
    Builder& b = context.builder;
    if (takes_mask() && !context.masks.empty() && context.masks[0] != kNone) {
      const ValueId valid = mask_beside(b, context.masks[0], x);
      const ValueId count = b.maximum(b.reduce_sum(valid, axes, keeps_rank()), 1.0);
      return b.div(b.reduce_sum(b.mul(x, valid), axes, keeps_rank()), count);
    }
    return kMax ? b.reduce_max(x, axes, keeps_rank()) : b.reduce_mean(x, axes, keeps_rank());
  }
};

// `outputs` windows along one axis.
class AdaptiveAxis {
 public:
  AdaptiveAxis(Builder& b, int axis, bool largest) : b_(b), axis_(axis), largest_(largest) {}

  ValueId pool(ValueId x, int64_t outputs) const {
    const int64_t size = b_.shape(x)[static_cast<size_t>(axis_)];
    if (size % outputs == 0) {
      return windows(x, size / outputs);
    }
    std::vector<ValueId> parts;
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t begin = i * size / outputs, end = ((i + 1) * size + outputs - 1) / outputs;
      parts.push_back(windows(b_.slice(x, axis_, begin, end), end - begin));
    }
    return b_.concat(parts, axis_);
  }

 private:
  // Windows of `cells` side by side. Of equal maxima the first one has the gradient, as in Keras:
  // reduce_max would share it.
  ValueId windows(ValueId x, int64_t cells) const {
    if (largest_) {
      const size_t rank = b_.shape(x).size() - 2;
      const std::vector<int64_t> ones(rank, 1), zeros(rank, 0);
      std::vector<int64_t> size = ones;
      size[static_cast<size_t>(axis_) - 1] = cells;
      return b_.max_pool(x, size, Window{size, ones, zeros, zeros});
    }
    Shape split = b_.shape(x);
    split[static_cast<size_t>(axis_)] /= cells;
    split.insert(split.begin() + axis_ + 1, cells);
    return b_.reduce_mean(b_.reshape(x, split), {axis_ + 1});
  }

  Builder& b_;
  int axis_;
  bool largest_;
};

}  // namespace

ValueId adaptive_pool(Builder& b, ValueId x, const std::vector<int64_t>& sizes, bool largest) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    x = AdaptiveAxis(b, static_cast<int>(d) + 1, largest).pool(x, sizes[d]);
  }
  return x;
}

namespace {

template <bool kMax>
class AdaptivePooling : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const auto sizes = per_dimension("output_size", diagnostics);
    if (!sizes) {
      return failed_shape();
    }
    sizes_ = *sizes;
    Shape output = {input[0]};
    output.insert(output.end(), sizes_.begin(), sizes_.end());
    output.push_back(input.back());
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    return adaptive_pool(context.builder, x, sizes_, kMax);
  }

 private:
  std::vector<int64_t> sizes_;  // output_size
};

}  // namespace

std::vector<LayerEntry> pooling_layers() {
  return {{"MaxPooling1D", make_as<Pooling<true>>},
          {"MaxPooling2D", make_as<Pooling<true>>},
          {"MaxPooling3D", make_as<Pooling<true>>},
          {"AveragePooling1D", make_as<Pooling<false>>},
          {"AveragePooling2D", make_as<Pooling<false>>},
          {"AveragePooling3D", make_as<Pooling<false>>},
          {"GlobalMaxPooling1D", make_as<GlobalPooling<true>>},
          {"GlobalMaxPooling2D", make_as<GlobalPooling<true>>},
          {"GlobalMaxPooling3D", make_as<GlobalPooling<true>>},
          {"GlobalAveragePooling1D", make_as<GlobalPooling<false>>},
          {"GlobalAveragePooling2D", make_as<GlobalPooling<false>>},
          {"GlobalAveragePooling3D", make_as<GlobalPooling<false>>},
          {"AdaptiveMaxPooling1D", make_as<AdaptivePooling<true>>},
          {"AdaptiveMaxPooling2D", make_as<AdaptivePooling<true>>},
          {"AdaptiveMaxPooling3D", make_as<AdaptivePooling<true>>},
          {"AdaptiveAveragePooling1D", make_as<AdaptivePooling<false>>},
          {"AdaptiveAveragePooling2D", make_as<AdaptivePooling<false>>},
          {"AdaptiveAveragePooling3D", make_as<AdaptivePooling<false>>}};
}

}  // namespace meshtrain
