// Activations as layers: ReLU, LeakyReLU, PReLU, ELU, Softmax. Source: Keras 3 layers/activations.
#include <algorithm>
#include <limits>

#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

class ReLU : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return relu(context.builder, to_compute(context, inputs[0]), config_.number("negative_slope"),
                number_or(config_, "max_value", std::numeric_limits<double>::infinity()),
                config_.number("threshold"));
  }
};

class LeakyReLU : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return leaky_relu(context.builder, to_compute(context, inputs[0]),
                      config_.number("negative_slope"));
  }
};

class ELU : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return elu(context.builder, to_compute(context, inputs[0]), config_.number("alpha"));
  }
};

// x above 0, alpha x below; alpha has the input's shape without the batch, 1 along shared axes.
class PReLU : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    Shape alpha = without_first(output);
    for (const int64_t axis : integers_of(value_or_null(config_, "shared_axes"))) {
      if (axis < 1 || axis >= static_cast<int64_t>(output.size())) {
        argument_error(diagnostics, "shared_axes",
                       fmt::format("names axis {} of {}", axis, shape_string(output)))
            .help(fmt::format("axes count from 1 to {}, without the batch", output.size() - 1));
        return failed_shape();
      }
      alpha[static_cast<size_t>(axis) - 1] = 1;
    }
    if (std::find(alpha.begin(), alpha.end(), kUnknownDim) != alpha.end()) {
      shape_error(diagnostics, inputs, "the sizes of axes that are not shared must be known")
          .help("write them in the Input's `shape`, or share the axes");
      return failed_shape();
    }
    alpha_ = add_weight("alpha", alpha);
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const ValueId below = b.unary("relu", b.neg(x));
    return b.sub(b.unary("relu", x), b.mul(context.weight(alpha_), below));
  }

 private:
  int alpha_ = kNone;
};

// Over one axis or jointly over several.
class Softmax : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    const ValueId x = to_compute(context, inputs[0]);
    return softmax(context.builder, x, axes(context.builder.shape(x).size()));
  }

 protected:
  bool needs_sizes() const override { return false; }
};

}  // namespace

std::vector<LayerEntry> activation_layers() {
  return {{"ReLU", make_as<ReLU>},
          {"LeakyReLU", make_as<LeakyReLU>},
          {"PReLU", make_as<PReLU>},
          {"ELU", make_as<ELU>},
          {"Softmax", make_as<Softmax>}};
}

}  // namespace meshtrain
