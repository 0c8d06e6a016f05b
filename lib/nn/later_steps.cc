#include "nn/later_steps.h"

#include <algorithm>

#include "config/cells.h"

namespace meshtrain {
namespace {

bool has_role(const LayerUse& use, std::string_view role) {
  return std::find(use.roles.begin(), use.roles.end(), role) != use.roles.end();
}

bool goes_backwards(const Layer& layer) {
  const ConfigObject& config = *layer.config();
  return layer.class_name == "Bidirectional" ||
         (config.boolean("go_backwards") && config.boolean("return_sequences"));
}

bool sees_later_steps(const Layer& layer, const LayerUse& use) {
  const std::string_view name = layer.acting_class();
  if (name == "MultiHeadAttention" || name == "GroupQueryAttention" || name == "Attention" ||
      name == "AdditiveAttention") {
    return !use.call_flag("use_causal_mask") && !has_role(use, "attention_mask");
  }
  if (name == "TransformerEncoder") {
    return !has_role(use, "attention_mask");
  }
  if (name == "TransformerDecoder") {
    const ConfigValue* const causal = use.call_argument("use_causal_mask");
    return causal != nullptr && !causal->boolean() && !has_role(use, "decoder_attention_mask");
  }
  if (name == "Conv1D" || name == "SeparableConv1D" || name == "DepthwiseConv1D") {
    const ConfigValue& cells = layer.acting()->arg("kernel_size");
    const bool is_one = cells.is_int() ? cells.integer() == 1 : cells.integers() == Shape{1};
    return layer.acting()->string("padding") == "same" && !is_one;
  }
  return layer.config() != nullptr && is_recurrent_class(name) && goes_backwards(layer);
}

}  // namespace

const Model::Call* call_of_later_steps(const Model& model, int output) {
  std::vector<bool> is_needed(model.calls().size(), false);
  is_needed[static_cast<size_t>(model.computing(output))] = true;
  const Model::Call* first = nullptr;
  for (size_t i = model.calls().size(); i-- > 0;) {
    const Model::Call& call = model.calls()[i];
    if (!is_needed[i] || call.is_input || call.layer == kNone) {
      continue;
    }
    for (const int input : call.inputs) {
      is_needed[static_cast<size_t>(model.computing(input))] = true;
    }
    const Layer& layer = *model.layers()[static_cast<size_t>(call.layer)];
    first = sees_later_steps(layer, call.use) ? &call : first;
  }
  return first;
}

}  // namespace meshtrain
