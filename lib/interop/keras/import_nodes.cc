#include "interop/keras/import_nodes.h"

#include <algorithm>
#include <iterator>

#include "base/printable.h"
#include "interop/keras/import_ops.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

// [layer, node, tensor]
TensorKey reference(const Json& value, const std::string& owner, const KerasJson& json) {
  if (!value.is_array() || value.size() < 3 || !value[0].is_string() ||
      !value[1].is_number_integer() || !value[2].is_number_unsigned()) {
    json.malformed(fmt::format(
        "a reference in `{}` is not [layer, node, tensor]; where outputs are nested, save "
        "keras.Model(model.inputs, model.outputs)",
        printable(owner)));
  }
  return {{value[0].get<std::string>(), value[1].get<int64_t>()}, value[2].get<size_t>()};
}

bool is_constant(const Json& value) {
  const Json class_name = value.is_object() ? value.value("class_name", Json()) : Json();
  return class_name == "__tensor__" || class_name == "__numpy__";
}

void collect_tensors(const Json& value, const std::string& name, const KerasJson& json,
                     KerasNode& node, int depth) {
  node.has_constant = node.has_constant || is_constant(value);
  if (value.is_object() && value.value("class_name", Json()) == "__keras_tensor__") {
    const Json& config = json.need(value, "config", name);
    node.needs.push_back(reference(json.need(config, "keras_history", name), name, json));
  } else if (value.is_array() && depth < 3) {
    for (const Json& entry : value) {
      collect_tensors(entry, name, json, node, depth + 1);
    }
  } else if (value.is_object() && value.contains("items") && depth < 3) {  // a tuple
    collect_tensors(value.at("items"), name, json, node, depth + 1);
  } else if (value.is_object() && !value.contains("class_name") && depth < 3) {
    for (const Json& entry : value) {  // a map of inputs; Keras flattens it by sorted names
      collect_tensors(entry, name, json, node, depth + 1);
    }
  }
}

// Arguments of calls that are inputs, in their order: a call may give them by name.
constexpr const char* kInputNames[] = {"inputs", "sequences", "decoder_sequence",
                                       "encoder_sequence"};

// null, or the list of these that Keras writes as the mask of several inputs.
bool is_none(const Json& value) {
  return value.is_null() || (value.is_array() && std::all_of(value.begin(), value.end(), is_none));
}

bool has_heads(const std::string& class_name) {
  return class_name == "MultiHeadAttention" || class_name == "GroupedQueryAttention" ||
         class_name == "GroupQueryAttention";
}

// Names of all tensors of a call, those without keywords first; none for most classes.
std::vector<std::string> roles_of(const std::string& class_name) {
  if (has_heads(class_name)) {
    return {"query", "value", "key", "attention_mask", "query_mask", "value_mask", "key_mask"};
  }
  if (class_name == "TransformerEncoder") {
    return {"inputs", "padding_mask", "attention_mask"};
  }
  if (class_name == "MaskedLMHead") {
    return {"inputs", "mask_positions"};
  }
  if (class_name == "TransformerDecoder") {
    return {"decoder_sequence",       "encoder_sequence",     "decoder_padding_mask",
            "decoder_attention_mask", "encoder_padding_mask", "encoder_attention_mask"};
  }
  return {};
}

bool is_flag(const std::string& key, const std::string& class_name) {
  const bool is_attention =
      has_heads(class_name) || class_name == "Attention" || class_name == "AdditiveAttention";
  return (is_attention && (key == "use_causal_mask" || key == kReturnsScores)) ||
         (key == "reverse" && class_name == "ReversibleEmbedding");
}

// The tensor of `key`, with roles; false: no such.
bool add_role(const std::string& key, const Json& value, const std::string& class_name,
              const std::string& name, const KerasJson& json, KerasNode& node) {
  const std::vector<std::string> names = roles_of(class_name);
  if (!value.is_object() || is_constant(value) ||
      std::find(names.begin(), names.end(), key) == names.end()) {
    return false;
  }
  std::vector<std::string>& roles = node.keywords.roles;
  for (size_t i = roles.size(); i < std::min(node.needs.size(), names.size()); ++i) {
    roles.push_back(names[i]);
  }
  collect_tensors(value, name, json, node, 0);
  roles.push_back(key);
  return roles.size() == node.needs.size();
}

KerasNode read_node(const Json& layer, size_t position, const Json& inbound,
                    const std::string& name, const std::string& class_name, KerasJson& json) {
  KerasNode node;
  node.layer = &layer;
  node.position = position;
  if (inbound.is_array()) {  // Keras 2: [[layer, node, tensor, {}], ...]
    for (const Json& entry : inbound) {
      node.needs.push_back(reference(entry, name, json));
      if (entry.size() > 3 && !entry[3].empty()) {
        json.refuse(name, class_name, "is called with further arguments");
      }
    }
    return node;
  }
  const Json& arguments = json.need(inbound, "args", fmt::format("a node of `{}`", name));
  collect_tensors(arguments, name, json, node, 0);
  const Json none = Json::object();
  const Json* keywords = find_member(inbound, "kwargs");
  if (is_operation(layer)) {
    node.args = arguments;
    node.kwargs = keywords == nullptr ? none : *keywords;
    const Operation* const operation = find_operation_class(class_name);
    const auto operands = operation == nullptr || operation->takes_any_number()
                              ? std::vector<Operation::Parameter>()
                              : operation->operand_parameters();
    for (size_t i = arguments.size(); i < operands.size(); ++i) {  // those given by name
      if (const auto given = node.kwargs.find(operands[i].name); given != node.kwargs.end()) {
        collect_tensors(*given, name, json, node, 0);
      }
    }
    return node;
  }
  for (const char* const input : kInputNames) {
    const Json* given = keywords == nullptr ? nullptr : find_member(*keywords, input);
    if (given != nullptr) {
      collect_tensors(*given, name, json, node, 0);
    }
  }
  if (node.has_constant) {
    json.refuse(name, class_name, "is called with a constant; inputs of layers are tensors");
  }
  for (const auto& [key, value] : (keywords == nullptr ? none : *keywords).items()) {
    if (is_none(value) ||
        std::find(std::begin(kInputNames), std::end(kInputNames), key) != std::end(kInputNames)) {
      continue;
    }
    // Keras keeps the `training` of the call that built the model, and runs with that of the run.
    const bool is_input = key == "initial_state" || key == "count_weights";
    if (is_input) {  // one tensor, or a list
      collect_tensors(value, name, json, node, 0);
    } else if (key == "mask" && value.is_object()) {
      KerasNode masks;
      collect_tensors(value, name, json, masks, 0);
      node.mask = std::move(masks.needs);
    } else if (value == true && is_flag(key, class_name)) {
      node.keywords.flags.push_back(key);
    } else if (add_role(key, value, class_name, name, json, node)) {
      continue;
    } else if (key != "training" && value != false) {
      json.refuse(name, class_name,
                  fmt::format("is called with {}`{}`", is_constant(value) ? "a constant " : "",
                              printable(key)));
    }
  }
  return node;
}

}  // namespace

bool is_keras_model(const std::string& class_name) {
  return class_name == "Sequential" || class_name == "Functional" || class_name == "Model";
}

std::string name_of_layer(const Json& layer, const KerasJson& json) {
  return layer.contains("name")
             ? json.need_text(layer, "name", "a layer")
             : json.need_text(json.need(layer, "config", "a layer"), "name", "a layer");
}

KerasNodes read_nodes(const Json& layers, KerasJson& json) {
  KerasNodes out;
  std::set<std::string> names;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Json& layer = layers[i];
    const std::string name = name_of_layer(layer, json);
    const std::string class_name = json.need_text(layer, "class_name", name);
    if (!names.insert(name).second) {
      json.malformed(fmt::format("two layers are named `{}`", printable(name)));
    }
    if (is_keras_model(class_name) && class_name != "Sequential") {
      out.functional.insert(name);
    }
    const Json* inbound = find_member(layer, "inbound_nodes");
    if (inbound == nullptr || !inbound->is_array()) {
      json.malformed(fmt::format("layer `{}` has no list `inbound_nodes`", printable(name)));
    }
    for (size_t n = 0; n < inbound->size(); ++n) {
      out.nodes.emplace(NodeKey{name, static_cast<int64_t>(n)},
                        read_node(layer, i, (*inbound)[n], name, class_name, json));
    }
  }
  return out;
}

std::vector<std::pair<std::string, TensorKey>> read_references(const Json& value,
                                                               const std::string& owner,
                                                               const KerasJson& json) {
  std::vector<std::pair<std::string, TensorKey>> out;
  const bool is_leaf =
      value.is_array() && value.size() == 3 && value[0].is_string() && value[1].is_number();
  if (is_leaf) {
    out.emplace_back("", reference(value, owner, json));
  } else if (value.is_array() || value.is_object()) {
    for (const auto& [key, entry] : value.items()) {
      out.emplace_back(value.is_array() ? "" : key, reference(entry, owner, json));
    }
  }
  if (out.empty()) {
    json.malformed(fmt::format("`{}` names nothing", owner));
  }
  return out;
}

std::set<NodeKey> nodes_of_masks(const std::map<NodeKey, KerasNode>& nodes,
                                 const std::vector<TensorKey>& outputs) {
  std::set<NodeKey> out;
  std::vector<NodeKey> found;
  for (const auto& [key, node] : nodes) {
    for (const TensorKey& mask : node.mask) {
      found.push_back(mask.node);
    }
  }
  while (!found.empty()) {
    const auto at = nodes.find(found.back());
    found.pop_back();
    if (at != nodes.end() && is_operation(*at->second.layer) && out.insert(at->first).second) {
      for (const TensorKey& need : at->second.needs) {
        found.push_back(need.node);
      }
    }
  }
  // What anything else needs is more than a mask.
  bool changed = true;
  while (changed) {
    changed = false;
    for (const auto& [key, node] : nodes) {
      for (const TensorKey& need : node.needs) {
        changed = (!out.contains(key) && out.erase(need.node) > 0) || changed;
      }
    }
  }
  for (const TensorKey& output : outputs) {
    out.erase(output.node);
  }
  return out;
}

std::vector<NodeKey> order_of_nodes(const std::map<NodeKey, KerasNode>& nodes,
                                    const std::map<NodeKey, std::vector<int>>& done,
                                    const KerasJson& json) {
  using Order = std::pair<size_t, int64_t>;  // position of the layer, node
  std::map<NodeKey, std::vector<const NodeKey*>> waiting;
  std::map<NodeKey, size_t> missing;
  std::map<Order, const NodeKey*> ready;
  for (const auto& [key, node] : nodes) {
    size_t count = 0;
    for (const auto& [need, tensor] : node.needs) {
      if (!done.contains(need)) {
        waiting[need].push_back(&key);
        ++count;
      }
    }
    missing[key] = count;
    if (count == 0) {
      ready.emplace(Order{node.position, key.second}, &key);
    }
  }
  std::vector<NodeKey> order;
  while (!ready.empty()) {
    const NodeKey key = *ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(key);
    for (const NodeKey* next : waiting[key]) {
      if (--missing[*next] == 0) {
        ready.emplace(Order{nodes.at(*next).position, next->second}, next);
      }
    }
  }
  if (order.size() < nodes.size()) {
    for (const auto& [key, left] : missing) {
      if (left > 0) {
        json.malformed(fmt::format("layer `{}` depends on itself or on a layer that is not there",
                                   printable(key.first)));
      }
    }
  }
  return order;
}

std::map<NodeKey, size_t> parts_read(const std::map<NodeKey, KerasNode>& nodes,
                                     const std::vector<TensorKey>& outputs, const KerasJson& json) {
  std::map<NodeKey, size_t> out;
  const auto read = [&](const TensorKey& key) {
    if (key.tensor >= kMaxCalls) {
      json.malformed(fmt::format("`{}` has no output {}", printable(key.node.first), key.tensor));
    }
    size_t& count = out[key.node];
    count = std::max(count, key.tensor + 1);
  };
  for (const auto& [key, node] : nodes) {
    std::for_each(node.needs.begin(), node.needs.end(), read);
  }
  std::for_each(outputs.begin(), outputs.end(), read);
  return out;
}

}  // namespace meshtrain
