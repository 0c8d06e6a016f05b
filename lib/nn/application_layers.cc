// Layers that networks of keras.applications have beside those of keras.layers. Source: Keras 3
// applications/convnext.py, applications/inception_resnet_v2.py.
#include "nn/arguments.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

// Each channel times a weight.
class LayerScale final : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const int64_t size = config_.integer("projection_dim");
    if (inputs[0].size() < 2 || (inputs[0].back() != size && size != 1)) {
      shape_error(diagnostics, inputs, fmt::format("its last dimension must have {}", size))
          .help("`projection_dim` is the number of channels of the input");
      return failed_shape();
    }
    gamma_ =
        add_weight("variable", {size}, variable_dtype, filled_with(config_.number("init_values")));
    return inputs[0];
  }
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return context.builder.mul(to_compute(context, inputs[0]), context.weight(gamma_));
  }

 private:
  int gamma_ = kNone;
};

// Whole samples are dropped in training, the others scaled up.
class StochasticDepth final : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const double rate = config_.number("drop_path_rate");
    if (!context.training || rate == 0) {
      return x;
    }
    Shape noise(b.shape(x).size(), 1);
    noise[0] = b.shape(x)[0];
    return b.dropout(x, rate, context.step, seed(context), noise);
  }
};

// The first input and a part of the second.
class CustomScaleLayer final : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (inputs.size() == 2 && inputs[0] == inputs[1]) {
      return inputs[0];
    }
    shape_error(diagnostics, inputs, "it takes two inputs of one shape")
        .help("write `inputs: [x, residual]`");
    return failed_shape();
  }
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    return b.add(to_compute(context, inputs[0]),
                 b.mul(to_compute(context, inputs[1]), config_.number("scale")));
  }
};

}  // namespace

std::vector<LayerEntry> application_layers() {
  return {{"LayerScale", make_as<LayerScale>},
          {"StochasticDepth", make_as<StochasticDepth>},
          {"CustomScaleLayer", make_as<CustomScaleLayer>}};
}

}  // namespace meshtrain
