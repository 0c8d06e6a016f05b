#include "nn/keras/import_graph.h"

#include <map>
#include <set>

#include "base/text.h"
#include "config/catalogue.h"
#include "nn/keras/import_ops.h"
#include "tensor/npy_header.h"

namespace meshtrain {
namespace {

constexpr int kMaxDepth = 512;        // of the JSON; a model nested in a model takes twelve
constexpr size_t kMaxCalls = 100000;  // of the dissolved graph

// (layer, node) -> call. A reference names the tensor as well, which is always the first here.
using NodeKey = std::pair<std::string, int64_t>;

class GraphReader {
 public:
  GraphReader(std::string file, KerasModel& out) : file_(std::move(file)), out_(out) {}

  void read(const Json& root) {
    const Json& config = model_config(root, "the model");
    out_.name = config.value("name", "model");
    const Json* compile = root.is_object() ? find(root, "compile_config") : nullptr;
    out_.compile = compile == nullptr ? Json() : *compile;
    out_.is_sequential = root.at("class_name") == "Sequential";
    outputs_ = run_model(root, "", {}, true);
    for (const auto& [name, call] : outputs_) {
      const std::string& layer = out_.layers[out_.calls[call].layer].name;
      out_.outputs.emplace_back(out_.outputs_are_named ? name : layer, call);
    }
    problems_.throw_if_errors();
  }

 private:
  using Outputs = std::vector<std::pair<std::string, int>>;

  [[noreturn]] void malformed(const std::string& what) const {
    throw ConfigError("E405", {}, fmt::format("`{}`: {}", file_, what));
  }
  void refuse(const std::string& layer, const std::string& class_name, const std::string& what,
              const char* code = "E416") {
    problems_.error(code, {},
                    fmt::format("`{}`: layer `{}` ({}) {}", file_, printable(layer),
                                printable(class_name), what));
  }

  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  const Json& need(const Json& object, const char* key, const std::string& owner) const {
    const Json* found = object.is_object() ? find(object, key) : nullptr;
    if (found == nullptr) {
      malformed(fmt::format("{} has no `{}`", printable(owner), key));
    }
    return *found;
  }
  std::string need_text(const Json& object, const char* key, const std::string& owner) const {
    const Json& value = need(object, key, owner);
    if (!value.is_string()) {
      malformed(fmt::format("`{}` of {} is no text", key, printable(owner)));
    }
    return value.get<std::string>();
  }

  static bool is_model(const std::string& class_name) {
    return class_name == "Sequential" || class_name == "Functional" || class_name == "Model";
  }

  const Json& model_config(const Json& object, const std::string& owner) const {
    const std::string class_name = need_text(object, "class_name", owner);
    const Json& config = need(object, "config", owner);
    const Json* layers = config.is_object() ? find(config, "layers") : nullptr;
    if (!is_model(class_name) || layers == nullptr || !layers->is_array()) {
      malformed(fmt::format("{} is a {}, not a Sequential or Functional model with its layers",
                            printable(owner), printable(class_name)));
    }
    return config;
  }

  // The outputs of the model `object` for these inputs; at the top they are made here. `path`: of
  // its group in an HDF5 file, with a slash at the end.
  Outputs run_model(const Json& object, const std::string& path, const std::vector<int>& inputs,
                    bool is_top) {
    const Json& config = model_config(object, is_top ? "the model" : "a nested model");
    return object.at("class_name") == "Sequential" ? run_sequential(object, config, path, inputs)
                                                   : run_functional(config, path, inputs, is_top);
  }

  // Keras' names of the groups of a list of layers: the class, counted.
  std::vector<std::string> groups_of(const Json& layers, const std::string& path) const {
    std::map<std::string, int> used;
    std::vector<std::string> out;
    for (const Json& layer : layers) {
      const std::string class_name = need_text(layer, "class_name", "a layer");
      if (is_operation(layer)) {
        out.emplace_back();
        continue;
      }
      const std::string base = to_snake_case(class_name);
      const int count = used[base]++;
      out.push_back(
          fmt::format("{}layers/{}{}", path, base, count == 0 ? "" : fmt::format("_{}", count)));
    }
    return out;
  }

  Outputs run_sequential(const Json& object, const Json& config, const std::string& path,
                         std::vector<int> current) {
    const Json& layers = config.at("layers");
    const std::vector<std::string> groups = groups_of(layers, path);
    size_t first = 0;
    const bool has_input = !layers.empty() && layers[0].at("class_name") == "InputLayer";
    if (current.empty()) {
      current = {has_input ? add_call(layer_of(layers[0], groups[0]), {})
                           : add_call(implied_input(object, config), {})};
    }
    first = has_input ? 1 : 0;
    for (size_t i = first; i < layers.size(); ++i) {
      current = call(layers[i], groups[i], current);
    }
    if (current.size() != 1) {
      malformed("a Sequential model has several outputs");
    }
    return {{"", current[0]}};
  }

  // A Sequential that was built without an Input says in other places what it was built for.
  int implied_input(const Json& object, const Json& config) {
    const Json* shape = find(config, "build_input_shape");
    const Json* build = find(object, "build_config");
    if ((shape == nullptr || shape->is_null()) && build != nullptr && build->is_object()) {
      shape = find(*build, "input_shape");
    }
    const Json& layers = config.at("layers");
    for (const char* key : {"batch_shape", "batch_input_shape"}) {
      if ((shape == nullptr || shape->is_null()) && !layers.empty() &&
          layers[0].contains("config") && layers[0].at("config").is_object()) {
        shape = find(layers[0].at("config"), key);
      }
    }
    if (shape == nullptr || !shape->is_array()) {
      throw ConfigError("E416", {},
                        fmt::format("`{}`: the model was never built, so the shape of its input is "
                                    "unknown; call model.build(shape) before saving",
                                    file_));
    }
    return layer_of(Json{{"class_name", "InputLayer"},
                         {"config", {{"name", "input_layer"}, {"batch_shape", *shape}}}},
                    "");
  }

  // The calls that one use of a layer, operation or nested model results in.
  std::vector<int> call(const Json& layer, const std::string& group,
                        const std::vector<int>& inputs) {
    if (is_model(need_text(layer, "class_name", "a layer"))) {
      std::vector<int> out;
      if (++depth_ > 32) {
        malformed("models are nested deeper than 32");
      }
      for (const auto& output : run_model(layer, group + "/", inputs, false)) {
        out.push_back(output.second);
      }
      --depth_;
      return out;
    }
    return {add_call(layer_of(layer, group), inputs)};
  }

  int add_call(int layer, std::vector<int> inputs) {
    if (out_.calls.size() >= kMaxCalls) {
      malformed(fmt::format("the model has more than {} calls of layers", kMaxCalls));
    }
    out_.calls.push_back({layer, std::move(inputs)});
    return static_cast<int>(out_.calls.size()) - 1;
  }

  // Index of the layer that stands at `place` in the JSON; made at its first use.
  int layer_of(const Json& layer, const std::string& group) {
    const auto known = by_place_.find(&layer);
    if (known != by_place_.end()) {
      return known->second;
    }
    KerasLayer made;
    made.class_name = need_text(layer, "class_name", "a layer");
    made.config = need(layer, "config", fmt::format("a {}", made.class_name));
    made.group = group;
    if (!made.config.is_object()) {
      malformed(fmt::format("`config` of a {} is no object", printable(made.class_name)));
    }
    const std::string name = need_text(made.config, "name", fmt::format("a {}", made.class_name));
    made.name = unique_name(name);
    check_class(layer, made);
    made.class_name = made.class_name == "InputLayer" ? "Input" : made.class_name;
    out_.layers.push_back(std::move(made));
    const int index = static_cast<int>(out_.layers.size()) - 1;
    if (!group.empty() || is_operation(layer)) {
      by_place_.emplace(&layer, index);
    }
    return index;
  }

  // Nested models may repeat names of the model around them.
  std::string unique_name(const std::string& name) {
    std::string out = name;
    for (int i = 1; !names_.insert(out).second; ++i) {
      out = fmt::format("{}_{}", name, i);
    }
    return out;
  }

  void check_class(const Json& layer, const KerasLayer& made) {
    const Json* registered = find(layer, "registered_name");
    const bool is_custom = registered != nullptr && registered->is_string() &&
                           registered->get<std::string>().find('>') != std::string::npos;
    if (made.class_name == "Lambda") {
      refuse(made.name, made.class_name, "holds Python code, which is never run", "E415");
    } else if (is_custom) {
      refuse(made.name, made.class_name, "is a class of your own, not one of Keras");
    } else if (made.name.find('/') != std::string::npos) {
      refuse(made.name, made.class_name, "has a `/` in its name, which separates parts of paths");
    } else if (is_operation(layer)) {
      return;  // looked at when it is called, with its arguments
    } else if (made.class_name != "InputLayer" &&
               (find_class(Category::kLayer, made.class_name) == nullptr ||
                made.class_name == "Call" || made.class_name == "Repeat")) {
      refuse(made.name, made.class_name, "is not in meshtrain");
    }
  }

  // --- functional ------------------------------------------------------------------------------

  struct Node {
    const Json* layer;
    size_t position;              // of the layer in the list
    std::vector<NodeKey> needs;   // in the order of the arguments
    std::vector<Json> arguments;  // as written, for operations
  };

  Outputs run_functional(const Json& config, const std::string& path, const std::vector<int>& given,
                         bool is_top) {
    const Json& layers = config.at("layers");
    const std::vector<std::string> groups = groups_of(layers, path);
    std::map<NodeKey, std::vector<int>> done;
    std::map<NodeKey, Node> nodes;
    std::set<std::string> functional;  // names of nested models of that class
    collect_nodes(layers, nodes, functional);
    bind_inputs(config, layers, groups, given, done, is_top);
    run_nodes(nodes, groups, done);
    return collect_outputs(config, functional, done, is_top);
  }

  std::string name_of(const Json& layer) const {
    return layer.contains("name") ? need_text(layer, "name", "a layer")
                                  : need_text(need(layer, "config", "a layer"), "name", "a layer");
  }

  void collect_nodes(const Json& layers, std::map<NodeKey, Node>& nodes,
                     std::set<std::string>& functional) {
    std::set<std::string> names;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Json& layer = layers[i];
      const std::string name = name_of(layer);
      const std::string class_name = need_text(layer, "class_name", name);
      if (!names.insert(name).second) {
        malformed(fmt::format("two layers are named `{}`", printable(name)));
      }
      if (is_model(class_name) && class_name != "Sequential") {
        functional.insert(name);
      }
      const Json* inbound = find(layer, "inbound_nodes");
      if (inbound == nullptr || !inbound->is_array()) {
        malformed(fmt::format("layer `{}` has no list `inbound_nodes`", printable(name)));
      }
      for (size_t n = 0; n < inbound->size(); ++n) {
        nodes.emplace(NodeKey{name, static_cast<int64_t>(n)},
                      read_node(layer, i, (*inbound)[n], name, class_name));
      }
    }
  }

  Node read_node(const Json& layer, size_t position, const Json& inbound, const std::string& name,
                 const std::string& class_name) {
    Node node{&layer, position, {}, {}};
    if (inbound.is_array()) {  // Keras 2: [[layer, node, tensor, {}], ...]
      for (const Json& entry : inbound) {
        node.needs.push_back(reference(entry, name));
        node.arguments.push_back(Json{{"class_name", "__keras_tensor__"}});
        if (entry.size() > 3 && !entry[3].empty()) {
          refuse(name, class_name, "is called with further arguments");
        }
      }
      return node;
    }
    const Json& arguments = need(inbound, "args", fmt::format("a node of `{}`", name));
    collect_tensors(arguments, name, class_name, node, 0);
    const Json none = Json::object();
    const Json* keywords = find(inbound, "kwargs");
    for (const auto& [key, value] : (keywords == nullptr ? none : *keywords).items()) {
      if (!value.is_null() && value != false) {
        refuse(name, class_name, fmt::format("is called with `{}`", printable(key)));
      }
    }
    return node;
  }

  // [layer, node, tensor]
  NodeKey reference(const Json& value, const std::string& owner) const {
    if (!value.is_array() || value.size() < 3 || !value[0].is_string() ||
        !value[1].is_number_integer() || !value[2].is_number_integer()) {
      malformed(fmt::format("a reference in `{}` is not [layer, node, tensor]", printable(owner)));
    }
    if (value[2] != 0) {
      malformed(fmt::format("`{}` takes output {} of `{}`; layers here have one output",
                            printable(owner), value[2].dump(),
                            printable(value[0].get<std::string>())));
    }
    return {value[0].get<std::string>(), value[1].get<int64_t>()};
  }

  void collect_tensors(const Json& value, const std::string& name, const std::string& class_name,
                       Node& node, int depth) {
    if (value.is_object() && value.value("class_name", Json()) == "__keras_tensor__") {
      const Json& config = need(value, "config", name);
      node.needs.push_back(reference(need(config, "keras_history", name), name));
      node.arguments.push_back(value);
    } else if (value.is_array() && depth < 3) {
      for (const Json& entry : value) {
        collect_tensors(entry, name, class_name, node, depth + 1);
      }
    } else if (value.is_object() && value.contains("items") && depth < 3) {  // a tuple
      collect_tensors(value.at("items"), name, class_name, node, depth + 1);
    } else if (value.is_object() && !value.contains("class_name") && depth < 3) {
      for (const Json& entry : value) {  // a map of inputs; Keras flattens it by sorted names
        collect_tensors(entry, name, class_name, node, depth + 1);
      }
    } else {
      node.arguments.push_back(value);
    }
  }

  void bind_inputs(const Json& config, const Json& layers, const std::vector<std::string>& groups,
                   const std::vector<int>& given, std::map<NodeKey, std::vector<int>>& done,
                   bool is_top) {
    const Outputs inputs = references(need(config, "input_layers", "the model"), "input_layers");
    if (!is_top && given.size() != inputs.size()) {
      malformed(fmt::format("a nested model is called with {} inputs, but has {}", given.size(),
                            inputs.size()));
    }
    std::map<std::string, size_t> positions;
    for (size_t i = 0; i < layers.size(); ++i) {
      positions.emplace(name_of(layers[i]), i);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const NodeKey key = referenced_[inputs[i].second];
      const auto found = positions.find(key.first);
      if (found == positions.end() || layers[found->second].at("class_name") != "InputLayer") {
        malformed(fmt::format("input `{}` is no InputLayer", printable(key.first)));
      }
      const Json& layer = layers[found->second];
      done[key] = {is_top ? add_call(layer_of(layer, groups[found->second]), {}) : given[i]};
    }
  }

  // The references in `value` in Keras' flattened order, with their keys in a map; `second` is an
  // index of referenced_.
  Outputs references(const Json& value, const std::string& owner) {
    Outputs out;
    const bool is_leaf =
        value.is_array() && value.size() == 3 && value[0].is_string() && value[1].is_number();
    const auto add = [&](const std::string& key, const Json& entry) {
      referenced_.push_back(reference(entry, owner));
      out.emplace_back(key, static_cast<int>(referenced_.size()) - 1);
    };
    if (is_leaf) {
      add("", value);
    } else if (value.is_array()) {
      for (const Json& entry : value) {
        add("", entry);
      }
    } else if (value.is_object()) {
      for (const auto& [key, entry] : value.items()) {
        add(key, entry);
      }
    }
    if (out.empty()) {
      malformed(fmt::format("`{}` names nothing", owner));
    }
    return out;
  }

  // Runs nodes as soon as what they need is there; among those, in the order of the list.
  void run_nodes(const std::map<NodeKey, Node>& nodes, const std::vector<std::string>& groups,
                 std::map<NodeKey, std::vector<int>>& done) {
    using Order = std::pair<size_t, int64_t>;  // position of the layer, node
    std::map<NodeKey, std::vector<const NodeKey*>> waiting;
    std::map<NodeKey, size_t> missing;
    std::map<Order, const NodeKey*> ready;
    for (const auto& [key, node] : nodes) {
      size_t count = 0;
      for (const NodeKey& need : node.needs) {
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
    size_t count = 0;
    while (!ready.empty()) {
      const NodeKey key = *ready.begin()->second;
      ready.erase(ready.begin());
      if (!done.contains(key)) {  // an input already is
        done[key] = run_node(nodes.at(key), groups, done);
      }
      ++count;
      for (const NodeKey* next : waiting[key]) {
        if (--missing[*next] == 0) {
          ready.emplace(Order{nodes.at(*next).position, next->second}, next);
        }
      }
    }
    if (count < nodes.size()) {
      for (const auto& [key, left] : missing) {
        if (left > 0) {
          malformed(fmt::format("layer `{}` depends on itself or on a layer that is not there",
                                printable(key.first)));
        }
      }
    }
  }

  std::vector<int> run_node(const Node& node, const std::vector<std::string>& groups,
                            const std::map<NodeKey, std::vector<int>>& done) {
    std::vector<int> inputs;
    for (const NodeKey& need : node.needs) {
      const std::vector<int>& calls = done.at(need);
      if (calls.size() != 1) {
        malformed(fmt::format("`{}`: an output of a nested model with several is used",
                              printable(need.first)));
      }
      inputs.push_back(calls[0]);
    }
    if (!is_operation(*node.layer)) {
      return call(*node.layer, groups[node.position], inputs);
    }
    std::string problem;
    const std::optional<Json> as_layer =
        layer_of_operation(*node.layer, node.arguments, inputs.size(), problem);
    if (!as_layer) {
      refuse(name_of(*node.layer), need_text(*node.layer, "class_name", "an operation"), problem);
      return {add_call(layer_of(*node.layer, ""), inputs)};
    }
    operations_.push_back(std::make_unique<Json>(*as_layer));
    return {add_call(layer_of(*operations_.back(), ""), inputs)};
  }

  Outputs collect_outputs(const Json& config, const std::set<std::string>& functional,
                          const std::map<NodeKey, std::vector<int>>& done, bool is_top) {
    const Json& value = need(config, "output_layers", "the model");
    out_.outputs_are_named = is_top ? value.is_object() : out_.outputs_are_named;
    Outputs out;
    for (const auto& [name, index] : references(value, "output_layers")) {
      NodeKey key = referenced_[index];
      // A nested Functional has a node of its own making before those of its calls.
      key.second -= functional.contains(key.first) ? 1 : 0;
      const auto found = done.find(key);
      if (found == done.end() || found->second.size() != 1) {
        malformed(fmt::format("output `{}` is nowhere computed", printable(key.first)));
      }
      out.emplace_back(name, found->second[0]);
    }
    return out;
  }

  std::string file_;
  KerasModel& out_;
  Diagnostics problems_;
  Outputs outputs_;
  int depth_ = 0;
  std::set<std::string> names_;
  std::map<const Json*, int> by_place_;            // layers by their place in the JSON
  std::vector<std::unique_ptr<Json>> operations_;  // operations as layers; kept for their places
  std::vector<NodeKey> referenced_;
};

Json parse(const std::string& text, const std::string& file) {
  bool too_deep = false;
  Json out = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      false);
  if (too_deep) {
    throw ConfigError("E405", {}, fmt::format("`{}`: nested deeper than {}", file, kMaxDepth));
  }
  if (out.is_discarded()) {
    throw ConfigError("E405", {}, fmt::format("`{}`: not valid JSON: truncated?", file));
  }
  return out;
}

}  // namespace

KerasModel read_keras_graph(const std::string& text, const std::string& file) {
  const Json root = parse(text, file);
  KerasModel out;
  try {
    GraphReader(file, out).read(root);
  } catch (const Json::exception&) {  // a member of another type than Keras writes
    throw ConfigError("E405", {}, fmt::format("`{}`: not the JSON of a Keras model", file));
  }
  return out;
}

}  // namespace meshtrain
