// The list of layers as a graph: names, inputs, outputs.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/catalogue.h"
#include "config/cells.h"
#include "config/layer_inputs.h"
#include "config/layer_names.h"
#include "mesh/layout_map.h"

namespace meshtrain {
namespace {

class ModelBinder {
 public:
  ModelBinder(ModelConfig& out, Diagnostics& diagnostics) : out_(out), diagnostics_(diagnostics) {}

  void layers(ConfigValue& tree) {
    auto& list = std::get<ConfigValue::List>(tree.data);
    if (list.empty()) {
      if (diagnostics_.has_errors()) {
        return;  // they could not be read
      }
      diagnostics_.error("E112", tree.loc, "`layers` of `model` is empty");
    }
    for (ConfigValue& entry : list) {
      add_layer(*std::get<std::shared_ptr<ConfigObject>>(entry.data));
    }
    for (size_t i = 0; i < out_.layers.size(); ++i) {
      connect(i);
    }
    set_state_batches();
  }

  // Layers whose whole name matches one of the patterns do not train.
  void freeze(const ConfigValue& patterns) {
    if (patterns.is_null()) {
      return;
    }
    for (const ConfigValue& text : patterns.list()) {
      try {
        if (!freeze_matching(Pattern(text.string(), text.loc), text)) {
          unknown(text.loc, fmt::format("`{}` of `frozen` matches no layer", text.string()),
                  text.string(), out_.layers.size());
        }
      } catch (const ConfigError& error) {
        diagnostics_.append(error.diagnostics());
      }
    }
  }

  void outputs(const ConfigValue& tree) {
    if (out_.layers.empty()) {
      return;
    }
    if (tree.is_null()) {
      const std::string& last = out_.layers.back().name.value;
      out_.outputs.emplace_back(last, Located<std::string>{last, {}});
    } else if (tree.is_string()) {
      add_output(tree.string(), tree);
    } else if (tree.is_list()) {
      for (const ConfigValue& entry : tree.list()) {
        add_output(entry.string(), entry);
      }
    } else {
      for (const auto& [name, entry] : tree.dict()) {
        add_output(name, entry);
      }
    }
    check_used();
  }

 private:
  bool freeze_matching(const Pattern& pattern, const ConfigValue& text) {
    bool is_any = false;
    for (LayerConfig& layer : out_.layers) {
      const auto trainable = layer.object.args.find("trainable");
      if (trainable != layer.object.args.end() && pattern.full_match(layer.name.value)) {
        is_any = true;
        trainable->second.data = false;
        trainable->second.loc = text.loc;
        trainable->second.is_default = false;
      }
    }
    return is_any;
  }

  void add_layer(ConfigObject& object) {
    LayerConfig layer;
    ConfigValue& name = object.args.at("name");
    layer.name_is_automatic = !name.is_string();
    if (layer.name_is_automatic) {
      name.data = counter_.next(object.class_name);
      name.is_default = true;
    }
    layer.name = {name.string(), layer.name_is_automatic ? object.loc : name.loc};
    // "stage/c1" is how a layer of a block is named; written out it is as good.
    for (const std::string& part : split(layer.name.value, '/')) {
      if (part.empty() || part == "." || part == "..") {
        diagnostics_.error(
            "E113", layer.name.loc,
            fmt::format("`{}` cannot name a layer: `/` separates the names of blocks "
                        "and layers",
                        layer.name.value));
        break;
      }
    }
    const auto [it, is_new] = places_.emplace(layer.name.value, out_.layers.size());
    if (!is_new) {
      const LayerConfig& first = out_.layers[it->second];
      Diagnostic& d = diagnostics_.error(
          "E121", layer.name.loc, fmt::format("two layers are named `{}`", layer.name.value));
      d.note(fmt::format("the first is at {}", first.name.loc.to_string()));
      if (layer.name_is_automatic || first.name_is_automatic) {
        d.help(fmt::format("`{}` is the automatic name of the {}; name it", layer.name.value,
                           layer.name_is_automatic ? "second" : "first"));
      }
    }
    layer.object = object;
    const std::string_view shares = argument_of_shared_layer(layer.object.class_name);
    if (!shares.empty() && layer.object.arg(shares).is_string()) {
      const ConfigValue& shared = layer.object.arg(shares);
      layer.shared_layer = {shared.string(), shared.loc};
    }
    out_.layers.push_back(std::move(layer));
  }

  // Layers that keep their states need the batch size of the Inputs, which all have the same.
  void set_state_batches() {
    std::optional<int64_t> batch_size;
    for (const LayerConfig& layer : out_.layers) {
      if (layer.object.class_name == "Input" && layer.object.has("batch_size")) {
        batch_size = layer.object.integer("batch_size");
      }
    }
    for (LayerConfig& layer : out_.layers) {
      if (batch_size && is_stateful(layer.object)) {
        set_state_batch(layer.object, *batch_size);
      }
    }
  }

  // Sets the inputs of layer `i` and the layer that a Call uses.
  void connect(size_t i) {
    LayerConfig& layer = out_.layers[i];
    const bool is_input = layer.object.class_name == "Input";
    if (i == 0 && !is_input) {
      diagnostics_.error("E121", layer.object.loc, "the first layer must be an Input")
          .help("begin with `- Input: {shape: [28, 28, 1]}`, the shape of one sample");
      return;
    }
    const auto given = layer.object.args.find("inputs");
    const bool has_inputs = given != layer.object.args.end() && !given->second.is_null();
    out_.is_sequential = out_.is_sequential && !has_inputs && layer.object.class_name != "Call";
    if (has_inputs) {
      for_each_name(given->second, [&](const ConfigValue& name) { add_input(i, name); });
      if (given->second.is_dict()) {
        for (const auto& [role, name] : given->second.dict()) {
          layer.input_roles.push_back(role);
        }
      }
    } else if (!is_input) {
      layer.inputs.push_back({out_.layers[i - 1].name.value, {}});
    }
    const std::string& class_name = layer.object.class_name;
    if (is_cell_class(class_name)) {
      diagnostics_
          .error(
              "E121", layer.object.loc,
              fmt::format("layer `{}` ({}) computes one step only", layer.name.value, class_name))
          .help(fmt::format("write `RNN: {{cell: {{{}: ...}}}}`", class_name));
    }
    const ConfigObject* acting = &layer.object;
    if (class_name == "Call") {
      const LayerConfig* target =
          earlier(i, layer.shared_layer.value, layer.shared_layer.loc, "layer");
      acting = target == nullptr ? nullptr : &target->object;
      if (target != nullptr && (acting->class_name == "Input" || acting->class_name == "Call")) {
        diagnostics_.error(
            "E121", layer.shared_layer.loc,
            fmt::format("`{}` is a {}; only a layer with a computation of its own can "
                        "be used again",
                        layer.shared_layer.value, acting->class_name));
      }
    }
    if (class_name == "MaskedLMHead" && layer.object.has("token_embedding")) {
      earlier(i, layer.shared_layer.value, layer.shared_layer.loc, "`token_embedding`");
    }
    bind_inputs(layer, acting, diagnostics_);
  }

  template <class F>
  static void for_each_name(const ConfigValue& value, F&& function) {
    if (value.is_string()) {
      function(value);
    } else if (value.is_list()) {
      std::for_each(value.list().begin(), value.list().end(), function);
    } else {
      for (const auto& [key, entry] : value.dict()) {
        function(entry);
      }
    }
  }

  void add_input(size_t i, const ConfigValue& name) {
    if (name.string().empty()) {
      return;  // could not be read
    }
    if (earlier(i, name.string(), name.loc, "input") != nullptr) {
      out_.layers[i].inputs.push_back({name.string(), name.loc});
    }
  }

  // The layer of that name before layer `i`; reports why there is none.
  const LayerConfig* earlier(size_t i, const std::string& name, const SourceLoc& loc,
                             const char* what) {
    const auto found = find(name);
    if (found != places_.end() && found->second < i) {
      return &out_.layers[found->second];
    }
    const std::string& own = out_.layers[i].name.value;
    if (found != places_.end() && found->second == i) {
      diagnostics_.error("E121", loc, fmt::format("layer `{}` takes itself as {}", own, what));
    } else if (found != places_.end()) {
      diagnostics_
          .error("E121", loc, fmt::format("{} `{}` of layer `{}` comes after it", what, name, own))
          .help("layers stand in the order in which they are computed")
          .note(
              fmt::format("`{}` is at {}", name, out_.layers[found->second].name.loc.to_string()));
    } else {
      unknown(loc, fmt::format("{} `{}` of layer `{}` is no layer", what, name, own), name, i);
    }
    return nullptr;
  }

  // The layer of that name, or that which has an output of that name: "encoder.state_h".
  std::unordered_map<std::string, size_t>::const_iterator find(const std::string& name) const {
    const auto whole = places_.find(name);
    if (whole != places_.end()) {
      return whole;
    }
    const auto [layer, output] = split_output(name);
    const auto found = output.empty() ? places_.end() : places_.find(layer);
    if (found == places_.end()) {
      return found;
    }
    const std::vector<std::string> known = outputs_beside(out_.layers[found->second]);
    return std::find(known.begin(), known.end(), output) == known.end() ? places_.end() : found;
  }

  // The further outputs of an entry: a layer, or a Call of one.
  std::vector<std::string> outputs_beside(const LayerConfig& entry) const {
    const auto shared =
        entry.object.class_name == "Call" ? places_.find(entry.shared_layer.value) : places_.end();
    const LayerConfig& layer = shared == places_.end() ? entry : out_.layers[shared->second];
    return further_outputs(layer.object, entry.object);
  }

  void unknown(const SourceLoc& loc, std::string message, const std::string& name, size_t end) {
    std::vector<std::string> names;
    for (size_t i = 0; i < end; ++i) {
      names.push_back(out_.layers[i].name.value);
      for (const std::string& output : outputs_beside(out_.layers[i])) {
        names.push_back(out_.layers[i].name.value + "." + output);
      }
    }
    Diagnostic& d = diagnostics_.error("E121", loc, std::move(message));
    suggest(d, name, names);
    const auto [layer, output] = split_output(name);
    const auto source = output.empty() ? places_.end() : places_.find(layer);
    if (source != places_.end() && source->second < end) {
      const bool has_any = !outputs_beside(out_.layers[source->second]).empty();
      d.help(has_any ? fmt::format("`{}` has no output of that name", layer)
                     : fmt::format("`{}` has one output; a recurrent layer has states, too, with "
                                   "`return_state: true`, attention its scores with `call: "
                                   "{{return_attention_scores: true}}`",
                                   layer));
    }
    d.notes.push_back(fmt::format("layers: {}", join(nearest_names(name, names, 8), ", ")));
  }

  void add_output(const std::string& name, const ConfigValue& layer) {
    for (const auto& [other, located] : out_.outputs) {
      if (other == name) {
        diagnostics_.error("E121", layer.loc, fmt::format("two outputs are named `{}`", name));
        return;
      }
    }
    if (layer.string().empty()) {
      return;  // could not be read
    }
    if (find(layer.string()) == places_.end()) {
      unknown(layer.loc, fmt::format("output `{}` is no layer", layer.string()), layer.string(),
              out_.layers.size());
      return;
    }
    out_.outputs.emplace_back(name, Located<std::string>{layer.string(), layer.loc});
  }

  // A layer that reaches no output is a slip: a wrong name in `inputs` somewhere.
  void check_used() {
    if (diagnostics_.has_errors()) {
      return;
    }
    std::vector<bool> used(out_.layers.size(), false);
    for (const auto& [name, layer] : out_.outputs) {
      used[find(layer.value)->second] = true;
    }
    for (size_t i = out_.layers.size(); i-- > 0;) {
      const LayerConfig& layer = out_.layers[i];
      if (!used[i]) {
        diagnostics_
            .error("E121", layer.name.loc,
                   fmt::format("the output of layer `{}` is not used", layer.name.value))
            .help("name it in the `inputs` of a later layer or in `outputs`, or leave it out");
        continue;
      }
      for (const Located<std::string>& input : layer.inputs) {
        used[find(input.value)->second] = true;
      }
    }
  }

  ModelConfig& out_;
  Diagnostics& diagnostics_;
  NameCounter counter_;
  std::unordered_map<std::string, size_t> places_;  // layer name -> index; looked up only
};

void bind_token_ids(const ConfigValue& map, ModelConfig& out, Diagnostics& diagnostics) {
  const std::vector<std::string> keys = {"bos_token_id", "eos_token_id", "pad_token_id"};
  for (const auto& [key, value] : map.dict()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      Diagnostic& d =
          diagnostics.error("E111", value.loc, fmt::format("unknown key `{}` in `token_ids`", key));
      if (!suggest(d, key, keys))
        d.help(fmt::format("keys are {}", join(keys, ", ")));
      continue;
    }
    std::vector<int64_t>& ids = out.token_ids[key];
    ids = value.is_list() ? value.integers() : std::vector{value.integer()};
    if (std::any_of(ids.begin(), ids.end(), [](int64_t id) { return id < 0; }))
      diagnostics.error("E113", value.loc, fmt::format("`{}` must be at least 0", key));
  }
}

}  // namespace

void bind_model(ConfigValue& tree, ModelConfig& out, Diagnostics& diagnostics) {
  ModelBinder binder(out, diagnostics);
  binder.layers(tree.field("layers"));
  binder.freeze(tree.field("frozen"));
  binder.outputs(tree.field("outputs"));
  bind_lora(tree.field("lora"), out, diagnostics);
  bind_remat(tree.field("remat"), out, diagnostics);
  bind_token_ids(tree.field("token_ids"), out, diagnostics);
  if (const ConfigValue& names = tree.field("class_names"); !names.is_null())
    out.class_names = names.strings();
  out.is_sequential = out.is_sequential && out.outputs.size() <= 1;
  derive(tree.field("name"), out.name, out.is_sequential ? "sequential" : "functional");
}

}  // namespace meshtrain
