// Dense, Activation, Identity. Source: Keras 3 layers/core.
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/lora.h"

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
      shape_error(diagnostics, inputs, "it needs at least one dimension besides the batch")
          .help("give the Input a shape such as [1], or add Flatten before it");
      return failed_shape();
    }
    if (input.back() == kUnknownDim) {
      shape_error(diagnostics, inputs, "the size of the last dimension must be known")
          .help("write it in the Input's `shape`, which has no batch dimension");
      return failed_shape();
    }
    const int64_t units = config_.integer("units");
    kernel_ = add_weight("kernel", {input.back(), units});
    bias_ = config_.boolean("use_bias") ? add_weight("bias", {units}) : kNone;
    Shape output = input;
    output.back() = units;
    return activated_shape(inputs, output, diagnostics);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = to_compute(context, inputs[0]);
    const std::string outer = letters(b.shape(x).size() - 1);
    x = weighted_einsum(context, outer + "y,yz->" + outer + "z", x, kernel_);
    if (bias_ != kNone) {
      x = b.add(x, context.weight(bias_));
    }
    return add_activation(b, config_.arg("activation"), x);
  }

 private:
  int kernel_ = kNone;
  int bias_ = kNone;
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

// The input itself, with the penalty l1 sum |x| + l2 sum x^2 on it.
class ActivityRegularization : public Identity {
 public:
  explicit ActivityRegularization(const ConfigObject& config) : Identity(config) {
    ConfigObject penalty = default_object(Category::kRegularizer, "L1L2");
    penalty.loc = config.loc;
    for (const char* factor : {"l1", "l2"}) {
      if (const ConfigValue& given = value_or_null(config, factor); !given.is_null()) {
        penalty.args[factor] = given;
      }
    }
    config_.args["activity_regularizer"].data = std::make_shared<ConfigObject>(std::move(penalty));
  }
};

}  // namespace

std::vector<LayerEntry> core_layers() {
  return {{"Dense", make_as<Dense>},
          {"Activation", make_as<Activation>},
          {"Identity", make_as<Identity>},
          {"ActivityRegularization", make_as<ActivityRegularization>}};
}

}  // namespace meshtrain
