// Dense, Dropout, Activation, Identity. Source: Keras 3 layers/core, layers/regularization.
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

// "abc" of the given length, for einsum equations over any rank.
std::string letters(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += static_cast<char>('a' + i);
  }
  return out;
}

// activation(x K + b) over the last axis; kernel (in, units), bias (units).
class Dense : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& input = inputs[0];
    if (input.size() < 2) {
      shape_error(diagnostics, inputs, "it needs at least one dimension beside the batch")
          .help("give the Input a shape such as [1], or add Flatten before it");
      return failed_shape();
    }
    if (input.back() == kUnknownDim) {
      shape_error(diagnostics, inputs, "the size of the last dimension must be known")
          .help("write it in the Input's `shape`");
      return failed_shape();
    }
    const int64_t units = config_.integer("units");
    if (units < 1) {
      argument_error(diagnostics, "units", fmt::format("is {}, must be at least 1", units));
      return failed_shape();
    }
    kernel_ = add_weight("kernel", {input.back(), units}, dtype,
                         make_initializer(config_.arg("kernel_initializer")));
    if (config_.boolean("use_bias")) {
      bias_ = add_weight("bias", {units}, dtype, make_initializer(config_.arg("bias_initializer")));
    }
    Shape output = input;
    output.back() = units;
    return activated_shape(inputs, output, diagnostics);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = to_compute(context, inputs[0]);
    const std::string outer = letters(b.shape(x).size() - 1);
    x = b.einsum(outer + "y,yz->" + outer + "z", {x, context.weight(kernel_)});
    if (bias_ != kNone) {
      x = b.add(x, context.weight(bias_));
    }
    return add_activation(b, config_.arg("activation"), x);
  }

 private:
  int kernel_ = kNone;
  int bias_ = kNone;
};

// While training: each element is kept with probability 1 - rate and then scaled by 1 / (1 - rate).
// The mask is a function of (seed, path, step, element): no state, no seed_generator variable.
class Dropout : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const double rate = config_.number("rate");
    if (!(rate >= 0 && rate <= 1)) {
      argument_error(diagnostics, "rate", fmt::format("is {}, must be from 0 to 1", rate));
    }
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (!is_failed(output) && value_or_null(config_, "noise_shape").is_list()) {
      check_noise_shape(output, diagnostics);
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const double rate = config_.number("rate");
    if (!context.training || rate == 0) {
      return x;
    }
    if (rate == 1) {
      return b.constant(0, b.dtype(x), b.shape(x));
    }
    return b.dropout(x, rate, context.step, integer_or(&config_, "seed", context.seed),
                     noise_shape(b.shape(x)));
  }

 private:
  void check_noise_shape(const Shape& input, Diagnostics& diagnostics) const {
    const std::vector<int64_t> noise = config_.arg("noise_shape").integers();
    bool fits = noise.size() == input.size();
    for (size_t i = 0; fits && i < noise.size(); ++i) {
      fits = noise[i] == kUnknownDim || noise[i] == 1 || noise[i] == input[i];
    }
    if (!fits) {
      argument_error(diagnostics, "noise_shape",
                     fmt::format("is {}, which does not broadcast to its input {}",
                                 shape_string(noise), shape_string(input)))
          .help("one entry per dimension, batch included: null for the input's size, 1 to share");
    }
  }

  // Empty for the input's own shape.
  Shape noise_shape(const Shape& input) const {
    if (!value_or_null(config_, "noise_shape").is_list()) {
      return {};
    }
    Shape shape = config_.arg("noise_shape").integers();
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i] = shape[i] == kUnknownDim ? input[i] : shape[i];
    }
    return shape;
  }
};

class Activation : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape input = FloatLayer::build(inputs, diagnostics);
    return is_failed(input) ? input : activated_shape(inputs, input, diagnostics);
  }
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return add_activation(context.builder, config_.arg("activation"),
                          to_compute(context, inputs[0]));
  }
};

class Identity : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;
  DType output_dtype(std::span<const DType> inputs) const override {
    return is_floating(inputs[0]) ? dtype : inputs[0];
  }
  ValueId call(CallContext&, std::span<const ValueId> inputs) override { return inputs[0]; }
};

}  // namespace

std::vector<LayerEntry> core_layers() {
  return {{"Dense", make_as<Dense>},
          {"Dropout", make_as<Dropout>},
          {"Activation", make_as<Activation>},
          {"Identity", make_as<Identity>}};
}

}  // namespace meshtrain
