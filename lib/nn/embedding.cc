// Embedding. Source: Keras 3 layers/core/embedding.py.
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

// ids of any shape -> ids.shape + (output_dim); embeddings (input_dim, output_dim).
class Embedding : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  bool casts_inputs() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    if (boolean_or(&config_, "mask_zero", false)) {
      argument_error(diagnostics, "mask_zero", "is true, but masks are not supported")
          .help("remove it; the loss's `ignore_class: 0` or sample weights leave out padding");
      return failed_shape();
    }
    const int64_t rows = config_.integer("input_dim");
    const int64_t columns = config_.integer("output_dim");
    if (rows < 1 || columns < 1) {
      argument_error(diagnostics, rows < 1 ? "input_dim" : "output_dim", "must be at least 1");
      return failed_shape();
    }
    embeddings_ = add_weight("embeddings", {rows, columns}, dtype,
                             make_initializer(config_.arg("embeddings_initializer")));
    Shape output = inputs[0];
    output.push_back(columns);
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId ids = b.cast(inputs[0], DType::kInt32);
    return to_compute(context, b.gather_rows(context.weight(embeddings_), ids));
  }

 private:
  int embeddings_ = kNone;
};

}  // namespace

std::vector<LayerEntry> embedding_layers() {
  return {{"Embedding", make_as<Embedding>}};
}

}  // namespace meshtrain
