#include "interop/keras/export_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/cells.h"
#include "nn/masks.h"

namespace meshtrain {
namespace {

// What layers with several inputs take by place, in this order; nothing for any other layer.
std::vector<std::string> positional_roles(std::string_view name) {
  if (name == "MultiHeadAttention" || name == "GroupQueryAttention" || name == "Attention" ||
      name == "AdditiveAttention") {
    return {"query", "value"};
  }
  if (name == "MaskedLMHead") {
    return {"inputs", "mask_positions"};
  }
  return name == "TransformerEncoder" ? std::vector<std::string>{"inputs"}
         : name == "TransformerDecoder"
             ? std::vector<std::string>{"decoder_sequence", "encoder_sequence"}
             : std::vector<std::string>();
}

// Keras takes query, value and key of these as one list.
bool takes_scores_list(std::string_view name) {
  return name == "Attention" || name == "AdditiveAttention";
}

void add_roles(const Model::Call& entry, const std::string& name,
               const std::vector<std::string>& positional, CallArguments& out) {
  std::vector<std::string> roles = entry.use.roles;
  if (roles.empty()) {
    roles = positional;
    roles.emplace_back("key");
  }
  out.as_list = takes_scores_list(name);
  const bool is_self = entry.inputs.size() == 1 && positional.front() == "query";
  const size_t given = is_self ? 2 : std::min(roles.size(), entry.inputs.size());
  for (size_t i = 0; i < given; ++i) {
    if (roles[i] == "positions" || roles[i] == "segments" ||
        (out.as_list && (roles[i] == "query_mask" || roles[i] == "value_mask"))) {
      out.untaken = roles[i];
      continue;
    }
    out.tensors.emplace_back(roles[i], entry.inputs[is_self ? 0 : i]);
  }
  for (const char* role :
       {"query", "value", "key", "inputs", "decoder_sequence", "encoder_sequence"}) {
    const auto found = std::find_if(out.tensors.begin(), out.tensors.end(),
                                    [&](const auto& one) { return one.first == role; });
    const bool is_positional =
        out.as_list || std::find(positional.begin(), positional.end(), role) != positional.end();
    if (is_positional && found != out.tensors.end()) {
      out.args.push_back(found->second);
      out.tensors.erase(found);
    }
  }
  for (const char* flag : {"use_causal_mask", "return_attention_scores"}) {
    if (const ConfigValue* value = entry.use.call_argument(flag)) {
      out.flags.emplace_back(flag, value->is_bool() && value->boolean());
    }
  }
}

// How many states each list has in which Keras keeps them: one, but for an LSTMCell in a stack.
std::vector<size_t> state_groups(const ConfigObject& layer) {
  std::vector<size_t> out;
  if (layer.class_name == "Bidirectional") {
    const ConfigObject& inner = layer.arg("layer").object();
    out = state_groups(inner);
    const std::vector<size_t> other =
        state_groups(layer.has("backward_layer") ? layer.arg("backward_layer").object() : inner);
    out.insert(out.end(), other.begin(), other.end());
  } else if (layer.class_name == "RNN" &&
             layer.arg("cell").object().class_name == "StackedRNNCells") {
    for (const NamedCell& cell : cells_of_stack(layer.arg("cell").object())) {
      out.push_back(cell.object->class_name == "LSTMCell" ? 2 : 1);
    }
  } else {
    out.assign(state_names(layer, "").size(), 1);
  }
  return out;
}

}  // namespace

std::vector<std::vector<int>> nested_states(const ConfigObject& layer, std::span<const int> calls) {
  const std::vector<size_t> groups = state_groups(layer);
  const size_t num_states = std::accumulate(groups.begin(), groups.end(), size_t{0});
  std::vector<std::vector<int>> out;
  size_t next = 0;
  for (; next + num_states < calls.size(); ++next) {  // no states
    out.push_back({calls[next]});
  }
  for (const size_t size : groups) {
    const size_t begin = std::min(next, calls.size()), end = std::min(next + size, calls.size());
    out.emplace_back(calls.begin() + static_cast<std::ptrdiff_t>(begin),
                     calls.begin() + static_cast<std::ptrdiff_t>(end));
    next = end;
  }
  std::erase_if(out, [](const std::vector<int>& group) { return group.empty(); });
  return out;
}

CallArguments call_arguments(const Model& model, int call) {
  const Model::Call& entry = model.calls()[call];
  const Layer& layer = *model.layers()[entry.layer];
  const std::vector<std::string> positional = positional_roles(layer.class_name);
  CallArguments out;
  if (!positional.empty()) {
    add_roles(entry, layer.class_name, positional, out);
    return out;
  }
  if (is_recurrent_class(layer.class_name)) {
    out.args = {entry.inputs[0]};
    if (entry.inputs.size() > 1) {
      out.initial_state = nested_states(*layer.config(), std::span(entry.inputs).subspan(1));
    }
    // Keras fills in the mask of a call with one tensor only.
    const bool uses_mask = layer_uses_mask(entry.use);
    if (model.calls()[entry.inputs[0]].has_mask && uses_mask != out.initial_state.empty()) {
      out.untaken = fmt::format("call: {{use_mask: {}}}", uses_mask);
      out.reason =
          "Keras' layer uses the mask of its steps where it has no initial states, and there "
          "alone; safetensors, npz and ONNX hold it all";
    }
    return out;
  }
  for (size_t i = 1; i < entry.use.roles.size(); ++i) {
    out.untaken = entry.use.roles[i];
  }
  const ConfigValue* const start = entry.use.call_argument("start_index");
  if (start != nullptr && start->is_int() && start->integer() != 0) {
    out.untaken = "call: {start_index: ...}";
  }
  out.args = entry.inputs;
  const ConfigValue* const reverse = entry.use.call_argument("reverse");
  if (reverse != nullptr && reverse->is_bool() && reverse->boolean()) {
    out.flags.emplace_back("reverse", true);
  }
  if (layer.class_name == "CategoryEncoding" && out.args.size() == 2) {
    out.tensors.emplace_back("count_weights", out.args[1]);  // Keras takes no second one by place
    out.args.pop_back();
  }
  out.as_list = out.args.size() > 1 && layer.class_name != "GlobalAveragePooling1D";
  return out;
}

}  // namespace meshtrain
