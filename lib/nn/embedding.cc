// Embedding. Source: Keras 3 layers/core/embedding.py.
#include "nn/layers.h"

namespace meshtrain {
namespace {

// ids of any shape -> ids.shape + (output_dim); embeddings (input_dim, output_dim). Ids that come
// from the data have been checked (engine/run_data.h); of others those outside take the nearest
// row.
class Embedding : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  bool casts_inputs() const override { return false; }
  bool casts_weights() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const int64_t columns = config_.integer("output_dim");
    embeddings_ = add_weight("embeddings", {config_.integer("input_dim"), columns});
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
