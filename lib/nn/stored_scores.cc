#include "nn/stored_scores.h"

#include "nn/roles.h"

namespace meshtrain {
namespace {

// Scores that are sums over features, which stand beside each other before they are added up.
bool adds_pairs(const Layer& layer) {
  return layer.class_name == "AdditiveAttention" ||
         (layer.class_name == "Attention" && layer.config()->string("score_mode") != "dot");
}

Shape pair_sums_shape(const Model& model, const Model::Call& call) {
  const AttentionInputs at = inputs_of(call.use, call.inputs.size());
  const auto shape = [&](size_t input) -> const Shape& {
    return model.calls()[static_cast<size_t>(call.inputs[input])].output_shape;
  };
  const Shape &query = shape(at.query), &key = shape(at.key);
  return {query[0], query[1], key[1], query[2]};
}

}  // namespace

std::optional<StoredScores> stored_scores(const Model& model, size_t index) {
  const Model::Call& call = model.calls()[index];
  if (call.is_input || call.result_of != kNone) {
    return std::nullopt;
  }
  const Layer& layer = *model.layers()[static_cast<size_t>(call.layer)];
  if (adds_pairs(layer)) {
    const bool is_additive = layer.class_name == "AdditiveAttention";
    return StoredScores{
        pair_sums_shape(model, call),
        is_additive ? "it adds each query to each key"
                    : "`score_mode: concat` adds each query to each key",
        is_additive ? "`Attention` has the scores of a product, which are not stored"
                    : "`score_mode: dot` has the scores of a product, which are not stored"};
  }
  if (call.use.call_flag("return_attention_scores")) {
    return StoredScores{model.calls()[index + 1].output_shape,
                        "`return_attention_scores` makes them an output",
                        "leave `return_attention_scores` out where the scores are only looked at: "
                        "a model of its own with the trained weights can return them"};
  }
  return std::nullopt;
}

}  // namespace meshtrain
