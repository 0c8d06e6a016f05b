#include "interop/keras/import_graph.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/printable.h"
#include "config/cells.h"
#include "interop/keras/import_chain.h"
#include "interop/keras/import_layers.h"
#include "interop/keras/import_masks.h"
#include "interop/keras/import_nodes.h"
#include "interop/keras/import_ops.h"
#include "interop/keras/import_unused.h"
#include "interop/keras/import_values.h"
#include "interop/keras/weights.h"

namespace meshtrain {
namespace {

// The class that takes a mask of steps as an input.
constexpr const char* kTakesMask = "GlobalAveragePooling1D";

class GraphReader {
 public:
  GraphReader(std::string file, KerasModel& out) : json_(std::move(file)), out_(out) {}

  void read(const Json& root) {
    const Json& config = model_config(root, "the model");
    out_.name = config.value("name", "model");
    const Json* compile = root.is_object() ? find_member(root, "compile_config") : nullptr;
    out_.compile = compile == nullptr ? Json() : *compile;
    out_.is_sequential = root.at("class_name") == "Sequential";
    for (const auto& [name, call] : run_model(root, "", {}, true)) {
      const KerasCall& made = out_.calls[call];
      const std::string& layer = out_.layers[made.layer].name;
      out_.outputs.emplace_back(out_.outputs_are_named ? name
                                : made.output.empty()  ? layer
                                                       : layer + "." + made.output,
                                call);
    }
    json_.throw_if_refused();
    leave_out_unused(out_);
    forget_unread_scores(out_);
  }

 private:
  using Outputs = std::vector<std::pair<std::string, int>>;
  using Done = std::map<NodeKey, std::vector<int>>;  // the calls that a node came to

  const Json& model_config(const Json& object, const std::string& owner) const {
    const std::string class_name = json_.need_text(object, "class_name", owner);
    const Json& config = json_.need(object, "config", owner);
    const Json* layers = config.is_object() ? find_member(config, "layers") : nullptr;
    if (!is_keras_model(class_name) || layers == nullptr || !layers->is_array()) {
      json_.malformed(fmt::format(
          "{} is a {}, not a Sequential or Functional model with its layers; where it is "
          "built from inputs and outputs, save keras.Model(model.inputs, model.outputs)",
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

  Outputs run_sequential(const Json& object, const Json& config, const std::string& path,
                         std::vector<int> current) {
    const Json& layers = config.at("layers");
    const std::vector<std::string> groups = groups_of_layers(layers, path, json_);
    const bool has_input = !layers.empty() && layers[0].at("class_name") == "InputLayer";
    if (current.empty()) {
      current = {has_input ? add_call(layer_of(layers[0], groups[0]), {})
                           : add_call(implied_input(object, config), {})};
    }
    for (size_t i = has_input ? 1 : 0; i < layers.size(); ++i) {
      current = call(layers[i], groups[i], current);
      if (!is_keras_model(json_.need_text(layers[i], "class_name", "a layer")) &&
          !current.empty()) {
        current.resize(1);  // the layer's first output
        const KerasCall& made = out_.calls[static_cast<size_t>(current[0])];
        masks_.add(current[0], out_.layers[static_cast<size_t>(made.layer)], made.inputs);
      }
    }
    if (current.size() != 1) {
      json_.malformed("a Sequential model has several outputs");
    }
    return {{"", current[0]}};
  }

  // A Sequential that was built without an Input says in other places what it was built for.
  int implied_input(const Json& object, const Json& config) {
    const Json* shape = find_member(config, "build_input_shape");
    const Json* build = find_member(object, "build_config");
    if ((shape == nullptr || shape->is_null()) && build != nullptr && build->is_object()) {
      shape = find_member(*build, "input_shape");
    }
    const Json& layers = config.at("layers");
    for (const char* key : {"batch_shape", "batch_input_shape"}) {
      if ((shape == nullptr || shape->is_null()) && !layers.empty() &&
          layers[0].contains("config") && layers[0].at("config").is_object()) {
        shape = find_member(layers[0].at("config"), key);
      }
    }
    if (shape == nullptr || !shape->is_array()) {
      throw ConfigError("E416", {},
                        fmt::format("`{}`: the model was never built, so the shape of its input is "
                                    "unknown; call model.build(shape) before saving",
                                    json_.file()));
    }
    return layer_of(Json{{"class_name", "InputLayer"},
                         {"config", {{"name", "input_layer"}, {"batch_shape", *shape}}}},
                    "");
  }

  // The calls that one use of a layer, operation or nested model results in.
  std::vector<int> call(const Json& layer, const std::string& group, const std::vector<int>& inputs,
                        const CallKeywords& keywords = {}) {
    if (is_keras_model(json_.need_text(layer, "class_name", "a layer"))) {
      std::vector<int> out;
      if (++depth_ > 32) {
        json_.malformed("models are nested deeper than 32");
      }
      for (const auto& output : run_model(layer, group + "/", inputs, false)) {
        out.push_back(output.second);
      }
      --depth_;
      return out;
    }
    if (layer.at("class_name") == "Pipeline" && layer.contains("config")) {
      return run_pipeline(layer.at("config"), inputs);
    }
    if (const Json* model = distributed_model(layer)) {
      return run_distributed(layer, *model, group, inputs);
    }
    const int index = layer_of(layer, group);
    std::vector<int> out = {add_call(index, inputs)};
    out_.calls.back().keywords = keywords;
    for (const std::string& output :
         further_outputs_of(out_.layers[static_cast<size_t>(index)], keywords)) {
      out.push_back(add_call(index, {}));
      out_.calls.back().result_of = out[0];
      out_.calls.back().output = output;
    }
    return out;
  }

  // A list of layers without weights, each of which follows the one before.
  std::vector<int> run_pipeline(const Json& config, const std::vector<int>& inputs) {
    std::vector<int> out = inputs;
    const Json& layers = json_.need(config, "layers", "a Pipeline");
    if (++depth_ > 32) {
      json_.malformed("Pipelines are nested deeper than 32");
    }
    for (const Json& layer : layers) {
      out = call(layer, "", out);
    }
    --depth_;
    return out;
  }

  // A TimeDistributed of a model is one of each of its layers, where these follow each other and
  // make no mask; else the model sees merged steps.
  std::vector<int> run_distributed(const Json& layer, const Json& model, const std::string& group,
                                   const std::vector<int>& inputs) {
    if (inputs.size() != 1) {
      json_.malformed("a TimeDistributed takes several inputs");
    }
    const auto chain = layers_of_chain(model, group + "/layer/", json_);
    if (!chain) {
      return {run_merged(layer, model, group, inputs[0])};
    }
    int current = inputs[0];
    for (const ChainLayer& each : *chain) {
      const int index = layer_of(distributed(layer, *each.layer), each.group);
      out_.layers[static_cast<size_t>(index)].is_distributed = true;
      current = add_masked_call(index, {current});
    }
    return {current};
  }

  int run_merged(const Json& layer, const Json& model, const std::string& group, int input) {
    const std::string name = name_of_layer(layer, json_);
    const auto own = [&](const char* class_name, const std::string& own_name) {
      return layer_of(Json{{"class_name", class_name}, {"config", {{"name", own_name}}}}, "");
    };
    const int merged = add_masked_call(own("MergeSteps", name + "_steps"), {input});
    const std::vector<int> outputs = call(model, group + "/layer", {merged});
    if (outputs.size() != 1) {
      json_.refuse(name, "TimeDistributed", "holds a model with several outputs");
    }
    return add_masked_call(own("SplitSteps", name), {outputs[0], input});
  }

  int add_masked_call(int layer, const std::vector<int>& inputs) {
    const int call = add_call(layer, inputs);
    masks_.add(call, out_.layers[static_cast<size_t>(layer)], inputs);
    return call;
  }

  // The TimeDistributed `outer` around `inner`; the same one at each call.
  const Json& distributed(const Json& outer, const Json& inner) {
    std::unique_ptr<Json>& out = distributed_[&inner];
    if (out == nullptr) {
      Json config = outer.at("config");
      config["name"] =
          fmt::format("{}_{}", name_of_layer(outer, json_), name_of_layer(inner, json_));
      config["layer"] = inner;
      out = std::make_unique<Json>(Json{{"class_name", "TimeDistributed"}, {"config", config}});
    }
    return *out;
  }

  int add_call(int layer, std::vector<int> inputs) {
    if (out_.calls.size() >= kMaxCalls) {
      json_.malformed(fmt::format("the model has more than {} calls of layers", kMaxCalls));
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
    made.class_name = json_.need_text(layer, "class_name", "a layer");
    made.config = json_.need(layer, "config", fmt::format("a {}", made.class_name));
    made.group = group;
    if (!made.config.is_object()) {
      json_.malformed(fmt::format("`config` of a {} is no object", printable(made.class_name)));
    }
    const std::string name = name_of_layer(layer, json_);
    made.config["name"] = name;
    made.name = unique_name(name);
    if (made.class_name == "MixUp" || made.class_name == "CutMix") {
      out_.dropped.push_back(drop_mixing(made));
    }
    check_class(layer, made, json_);
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

  // --- functional ------------------------------------------------------------------------------

  Outputs run_functional(const Json& config, const std::string& path, const std::vector<int>& given,
                         bool is_top) {
    const Json& layers = config.at("layers");
    const std::vector<std::string> groups = groups_of_layers(layers, path, json_);
    const KerasNodes found = read_nodes(layers, json_);
    Done done;
    bind_inputs(config, layers, groups, given, done, is_top);
    std::vector<TensorKey> outputs;
    for (const auto& [name, key] : read_references(json_.need(config, "output_layers", "the model"),
                                                   "output_layers", json_)) {
      outputs.push_back(key);
    }
    const std::set<NodeKey> masks = nodes_of_masks(found.nodes, outputs);
    const std::map<NodeKey, size_t> parts = parts_read(found.nodes, outputs, json_);
    for (const NodeKey& key : order_of_nodes(found.nodes, done, json_)) {
      if (!done.contains(key) && !masks.contains(key)) {  // an input already is
        const auto read = parts.find(key);
        done[key] =
            run_node(found.nodes.at(key), groups, read == parts.end() ? 1 : read->second, done);
        follow_mask(found.nodes, found.nodes.at(key), done[key], done);
      }
    }
    return collect_outputs(config, found.functional, done, is_top);
  }

  void bind_inputs(const Json& config, const Json& layers, const std::vector<std::string>& groups,
                   const std::vector<int>& given, Done& done, bool is_top) {
    const auto inputs =
        read_references(json_.need(config, "input_layers", "the model"), "input_layers", json_);
    if (!is_top && given.size() != inputs.size()) {
      json_.malformed(fmt::format("a nested model is called with {} inputs, but has {}",
                                  given.size(), inputs.size()));
    }
    std::map<std::string, size_t> positions;
    for (size_t i = 0; i < layers.size(); ++i) {
      positions.emplace(name_of_layer(layers[i], json_), i);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const NodeKey& key = inputs[i].second.node;
      const auto found = positions.find(key.first);
      if (found == positions.end() || layers[found->second].at("class_name") != "InputLayer") {
        json_.malformed(fmt::format("input `{}` is no InputLayer", printable(key.first)));
      }
      const Json& layer = layers[found->second];
      done[key] = {is_top ? add_call(layer_of(layer, groups[found->second]), {}) : given[i]};
    }
  }

  // `parts`: how many tensors of an operation are read.
  std::vector<int> run_node(const KerasNode& node, const std::vector<std::string>& groups,
                            size_t parts, const Done& done) {
    std::vector<int> inputs;
    for (const TensorKey& need : node.needs) {
      inputs.push_back(output_of(need, done));
    }
    if (!is_operation(*node.layer)) {
      if (node.layer->value("class_name", Json()) == kTakesMask && inputs.size() == 1 &&
          node.mask.size() == 1 && done.contains(node.mask[0].node)) {
        inputs.push_back(output_of(node.mask[0], done));  // not that of a layer before it
      }
      return call(*node.layer, groups[node.position], inputs, node.keywords);
    }
    // Of an operation that gives a list each tensor is a layer.
    const std::vector<std::string> names = place_inputs(out_, inputs);
    std::vector<int> out;
    for (size_t part = 0; part < parts; ++part) {
      std::string problem;
      const std::optional<Json> as_layer =
          layer_of_operation(*node.layer, node.args, node.kwargs, names, part, problem);
      if (!as_layer) {
        json_.refuse(name_of_layer(*node.layer, json_),
                     json_.need_text(*node.layer, "class_name", "an operation"), problem);
        return std::vector<int>(parts, add_call(layer_of(*node.layer, ""), inputs));
      }
      operations_.push_back(std::make_unique<Json>(*as_layer));
      out.push_back(add_call(layer_of(*operations_.back(), ""), inputs));
    }
    return out;
  }

  // --- masks -----------------------------------------------------------------------------------

  // A mask that Keras wrote must be the one that the layers before it pass on here.
  void follow_mask(const std::map<NodeKey, KerasNode>& nodes, const KerasNode& node,
                   const std::vector<int>& calls, const Done& done) {
    if (calls.empty() || is_operation(*node.layer)) {
      return;
    }
    KerasCall& call = out_.calls[static_cast<size_t>(calls[0])];
    const KerasLayer& layer = out_.layers[static_cast<size_t>(call.layer)];
    masks_.add(calls[0], layer, call.inputs);
    // Keras fills in the mask of a call with one tensor only.
    call.keywords.leaves_mask = is_recurrent_class(layer.class_name) && node.mask.empty() &&
                                call.inputs.size() > 1 && !masks_.of_call(call.inputs[0]).empty();
    const bool is_input = layer.class_name == kTakesMask && call.inputs.size() == 2;
    if (node.mask.empty() || is_input) {
      return;
    }
    const std::string given =
        masks_.of_operation(nodes, node.mask[0].node, [&](const TensorKey& tensor) {
          return done.contains(tensor.node) ? output_of(tensor, done) : kNone;
        });
    const bool is_model = is_keras_model(node.layer->at("class_name").get<std::string>()) ||
                          distributed_model(*node.layer) != nullptr;
    const int input = is_model && !node.needs.empty() ? output_of(node.needs[0], done)
                      : call.inputs.empty()           ? kNone
                                                      : call.inputs[0];
    if (given.empty() || input == kNone || given != masks_.of_call(input)) {
      json_.refuse(layer.name, layer.class_name,
                   "is called with a `mask` that is not the one of its input; here layers pass on "
                   "masks of `mask_zero` and `Masking` by themselves, and take no others");
    }
  }

  int output_of(const TensorKey& key, const Done& done) const {
    const auto found = done.find(key.node);
    if (found == done.end() || key.tensor >= found->second.size()) {
      json_.malformed(fmt::format("output {} of `{}` is nowhere computed", key.tensor,
                                  printable(key.node.first)));
    }
    return found->second[key.tensor];
  }

  Outputs collect_outputs(const Json& config, const std::set<std::string>& functional,
                          const Done& done, bool is_top) {
    const Json& value = json_.need(config, "output_layers", "the model");
    out_.outputs_are_named = is_top ? value.is_object() : out_.outputs_are_named;
    Outputs out;
    for (const auto& [name, reference] : read_references(value, "output_layers", json_)) {
      TensorKey key = reference;
      // A nested Functional has a node of its own making before those of its calls.
      key.node.second -= functional.contains(key.node.first) ? 1 : 0;
      out.emplace_back(name, output_of(key, done));
      if (is_top) {
        out_.output_names_in_keras.push_back(key.node.first);
      }
    }
    return out;
  }

  KerasJson json_;
  KerasModel& out_;
  int depth_ = 0;
  std::set<std::string> names_;
  ImportedMasks masks_;
  std::map<const Json*, int> by_place_;            // layers by their place in the JSON
  std::vector<std::unique_ptr<Json>> operations_;  // operations as layers; kept for their places
  std::map<const Json*, std::unique_ptr<Json>> distributed_;  // by the layer within
};

}  // namespace

KerasModel read_keras_graph(const std::string& text, const std::string& file) {
  const Json root = parse_keras_json(text, file);
  KerasModel out;
  try {
    GraphReader(file, out).read(root);
  } catch (const Json::exception&) {  // a member of another type than Keras writes
    throw ConfigError("E405", {}, fmt::format("`{}`: not the JSON of a Keras model", file));
  }
  return out;
}

}  // namespace meshtrain
