// SpectralNormalization: a layer whose kernel is divided by its largest singular value, as a power
// iteration finds it. Source: Keras 3 layers/normalization/spectral_normalization.py on JAX; Miyato
// et al., "Spectral Normalization for Generative Adversarial Networks", 2018.
#include <algorithm>

#include "config/cells.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/parts.h"

namespace meshtrain {
namespace {

constexpr double kLeastLength =
    1e-7;  // Keras' epsilon: the least length that a vector is divided by

// x / |x| over all elements.
ValueId unit_vector(Builder& b, ValueId x) {
  const ValueId sum = b.reduce_sum_all(b.square(x));
  return b.mul(x, b.minimum(b.unary("rsqrt", sum), 1 / kLeastLength));
}

class SpectralNormalization final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  const ConfigObject* acting() const override { return &config_.arg("layer").object(); }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !takes_layer("layer", diagnostics) ||
        !is_whole_layer("layer", diagnostics)) {
      return failed_shape();
    }
    const ConfigObject& inner = config_.arg("layer").object();
    part_.name = inner_name(inner);
    const Shape out = build_part(part_, inner, inputs, {}, diagnostics);
    if (is_failed(out)) {
      return failed_shape();
    }
    if (weight_of(part_.name + "/kernel") != kKernel &&
        weight_of(part_.name + "/embeddings") != kKernel) {
      argument_error(diagnostics, "layer",
                     fmt::format("is {}, which has no `kernel` or `embeddings`", inner.class_name))
          .help("write a layer such as Dense, Conv2D or Embedding");
      return failed_shape();
    }
    add_vector();
    return out;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    CallContext own = context;
    const ValueId normalized = context.training ? normalized_kernel(context) : kNone;
    own.weight = [&](int index) {
      return index == kKernel && normalized != kNone ? normalized : context.weight(place_of(index));
    };
    own.factored = {};
    own.update = [&](int index, ValueId value) { context.update(place_of(index), value); };
    return to_compute(context, call_part(own, part_, inputs));
  }

 private:
  static Initializer first_vector() {
    ConfigObject initializer;
    initializer.class_name = "TruncatedNormal";
    initializer.args["stddev"].data = 0.02;
    ConfigValue out;
    out.data = std::make_shared<ConfigObject>(std::move(initializer));
    return make_initializer(out);
  }
  // Behind the kernel and before the layer's other weights, as Keras has it.
  void add_vector() {
    const bool is_new = weight_of("vector_u") == kNone;
    add_weight("vector_u", {1, kernel().shape.back()}, kernel().dtype, first_vector(),
               /*trainable=*/false);
    if (is_new) {
      std::rotate(weights.begin() + kVector, weights.end() - 1, weights.end());
    }
  }
  // The place of the inner layer's weight `index`.
  static int place_of(int index) { return index < kVector ? index : index + 1; }
  const Weight& kernel() const { return weights[kKernel]; }
  int weight_of(std::string_view weight_name) const {
    const std::string path = fmt::format("{}/{}", name, weight_name);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i].path == path) {
        return static_cast<int>(i);
      }
    }
    return kNone;
  }

  // W / (v W u^T) with W (rows, last size), after steps towards its singular vectors v and u, which
  // count as constants. The next step of training begins with this u; a kernel of zeros stays.
  ValueId normalized_kernel(CallContext& context) const {
    Builder& b = context.builder;
    const ValueId kernel_value = context.weight(kKernel), first = context.weight(kVector);
    const Shape shape = kernel().shape;
    const ValueId matrix =
        b.reshape(kernel_value, {num_elements(shape) / shape.back(), shape.back()});
    const ValueId constant = b.stop_gradient(matrix);
    ValueId u = first, v = kNone;
    for (int64_t i = 0; i < config_.integer("power_iterations"); ++i) {
      v = unit_vector(b, b.einsum("ac,rc->ar", {u, constant}));
      u = unit_vector(b, b.einsum("ar,rc->ac", {v, constant}));
    }
    const ValueId zero = constant_like(b, constant, 0);
    const ValueId largest = b.reduce_max(b.unary("abs", constant), {0, 1});
    const ValueId is_zero = b.binary("eq", largest, zero);
    context.update(kVector, b.select(is_zero, first, u));
    const ValueId seen = b.einsum("ar,rc->ac", {v, matrix});
    const ValueId sigma = b.reduce_sum_all(b.mul(seen, u));
    return b.div(kernel_value, b.select(is_zero, constant_like(b, constant, 1), sigma));
  }

  Part part_;
  static constexpr int kKernel = 0, kVector = 1;  // weights
};

}  // namespace

std::vector<LayerEntry> spectral_layers() {
  return {{"SpectralNormalization", make_as<SpectralNormalization>}};
}

}  // namespace meshtrain
