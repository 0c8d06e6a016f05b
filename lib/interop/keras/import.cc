#include "interop/keras/import.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/printable.h"
#include "base/text.h"
#include "config/flow.h"
#include "config/layer_names.h"
#include "config/precision.h"
#include "config/schema.h"
#include "interop/keras/hub.h"
#include "interop/keras/import_compile.h"
#include "interop/keras/import_graph.h"
#include "interop/keras/import_shapes.h"
#include "interop/keras/import_values.h"

namespace meshtrain {
namespace {

class ConfigWriter {
 public:
  ConfigWriter(const KerasModel& model, const ImportOptions& options)
      : model_(model), options_(options), values_(problems_), dropped_(model.dropped) {}

  ImportedModel write() {
    name_calls();
    find_policy();
    note_other_version();
    std::string body = layers() + outputs();
    std::string training = imported_compile(model_, names_, dropped_);
    Diagnostics found;
    for (const std::string& problem : problems_) {
      found.error("E416", {}, fmt::format("`{}`: {}", options_.file, problem));
    }
    found.throw_if_errors();
    ImportedModel out;
    out.yaml = head() + "model:\n" + model_name() + body + training + fit();
    out.dropped = std::move(dropped_);
    for (const KerasLayer& layer : model_.layers) {
      if (!layer.group.empty()) {
        out.groups.push_back({layer.name, layer.group, layer.is_distributed});
      }
    }
    for (const std::string& group : model_.left_out) {
      out.groups.push_back({"", group});
    }
    out.num_layers = static_cast<int>(model_.layers.size());
    return out;
  }

 private:
  static std::string owner_of(const KerasLayer& layer) {
    return fmt::format("layer `{}` ({})", printable(layer.name), layer.class_name);
  }

  // Names of the entries: a layer's own at its first call, "call_3" at others.
  void name_calls() {
    std::set<std::string> taken;
    for (const KerasLayer& layer : model_.layers) {
      taken.insert(layer.name);
    }
    std::vector<bool> called(model_.layers.size(), false);
    int next = 1;
    for (const KerasCall& call : model_.calls) {
      const std::string& name = model_.layers[call.layer].name;
      if (call.result_of >= 0) {
        names_.push_back(names_[static_cast<size_t>(call.result_of)] + "." + call.output);
        continue;
      }
      if (!called[call.layer]) {
        called[call.layer] = true;
        names_.push_back(name);
        continue;
      }
      std::string other;
      do {
        other = fmt::format("{}_call_{}", name, next++);
      } while (!taken.insert(other).second);
      names_.push_back(other);
    }
  }

  // What Keras matches with the keys of a DTypePolicyMap.
  std::string path_of(const KerasLayer& layer) const {
    return model_.is_sequential ? model_.name + "/" + layer.name : layer.name;
  }

  // Keras 3 reads such a file without a word, too.
  void note_other_version() {
    if (!options_.version.starts_with("2.")) {
      return;
    }
    for (const KerasLayer& layer : model_.layers) {
      if (layer.config.dump().find("\"hard_sigmoid\"") != std::string::npos) {
        dropped_.push_back(
            fmt::format("{}: `hard_sigmoid` of Keras {}, which is clip(0.2 x + 0.5, 0, 1); here "
                        "it is Keras 3's, clip(x / 6 + 0.5, 0, 1)",
                        owner_of(layer), options_.version));
      }
    }
  }

  // The dtype policy of most layers becomes the config's.
  void find_policy() {
    std::map<std::string, int> counts;
    for (const KerasLayer& layer : model_.layers) {
      const auto dtype = layer.config.find("dtype");
      if (layer.class_name != "Input" && dtype != layer.config.end() &&
          !policy_name(*dtype, path_of(layer)).empty()) {
        ++counts[policy_name(*dtype, path_of(layer))];
      }
    }
    int most = 0;
    for (const auto& [policy, count] : counts) {
      if (count > most) {
        most = count;
        policy_ = policy;
      }
    }
    const Spec& spec = *root_section().find("dtype_policy");
    if (std::find(spec.allowed.begin(), spec.allowed.end(), policy_) == spec.allowed.end()) {
      problems_.push_back(
          fmt::format("the dtype policy `{}` is not in meshtrain", printable(policy_)));
      policy_ = "float32";
    }
  }

  std::string layers() {
    std::string out = "  layers:\n";
    std::vector<bool> made(model_.layers.size(), false);
    NameCounter automatic;
    for (size_t i = 0; i < model_.calls.size(); ++i) {
      const KerasCall& call = model_.calls[i];
      const KerasLayer& layer = model_.layers[call.layer];
      if (call.result_of >= 0) {
        continue;
      }
      std::vector<std::string> parts;
      if (made[call.layer]) {
        parts = {"layer: " + yaml_text(layer.name), "name: " + yaml_text(names_[i])};
        add_inputs(i, parts);
        out += fmt::format("    - Call: {{{}}}\n", join(parts, ", "));
        continue;
      }
      made[call.layer] = true;
      out += entry(layer, i, automatic);
    }
    return out;
  }

  std::string entry(const KerasLayer& layer, size_t call, NameCounter& automatic) {
    std::vector<std::string> parts;
    const ClassSpec& spec = *find_class(Category::kLayer, layer.class_name);
    GivenArgs args;
    if (layer.class_name == "Input") {
      parts = input_args(layer);
    } else {
      args = values_.arguments(spec, without_arrays(with_outer_penalty(layer), owner_of(layer)),
                               owner_of(layer), {"name", "dtype", "inputs"});
      drop_implied(layer, args);
      add_dtype(layer, spec, parts);
    }
    // A later unnamed entry counts on from the unnamed ones before it.
    NameCounter peek = automatic;
    if (peek.next(layer.class_name) == layer.name) {
      automatic = peek;
    } else {
      parts.insert(parts.begin(), "name: " + yaml_text(layer.name));
    }
    for (const auto& [name, value] : args) {
      parts.push_back(fmt::format("{}: {}", name, yaml_argument(name, value)));
    }
    add_inputs(call, parts);
    if (parts.empty()) {
      return fmt::format("    - {}\n", layer.class_name);
    }
    return fmt::format("    - {}: {{{}}}\n", layer.class_name, join(parts, ", "));
  }

  // Takes the penalty of the output of the layer within; null where it has none.
  static Json take_inner_penalty(Json& config, const char* part) {
    const auto inner = config.find(part);
    if (inner == config.end() || !inner->is_object() || !inner->contains("config") ||
        !inner->at("config").is_object()) {
      return {};
    }
    Json penalty = inner->at("config").value("activity_regularizer", Json());
    inner->at("config").erase("activity_regularizer");
    if (penalty.is_object()) {
      penalty.erase("shared_object_id");
    }
    return penalty;
  }

  // Layers within a layer have no outputs of their own here. The penalties of both directions of a
  // Bidirectional that joins their outputs, sums over elements, are the penalty of what it joined.
  Json with_outer_penalty(const KerasLayer& layer) {
    static const std::set<Json> kSums = {"L1", "L2", "L1L2"};
    Json config = layer.config;
    const Json penalty = take_inner_penalty(config, "layer");
    const Json backward = config.value("backward_layer", Json()).is_null()
                              ? penalty
                              : take_inner_penalty(config, "backward_layer");
    if (penalty.is_null() && backward.is_null()) {
      return config;
    }
    const Json merge_mode = config.value("merge_mode", Json("concat"));
    if (layer.class_name == "Bidirectional" && penalty == backward && penalty.is_object() &&
        kSums.contains(penalty.value("class_name", Json())) &&
        (merge_mode.is_null() || merge_mode == "concat") &&
        config.value("activity_regularizer", Json()).is_null()) {
      config["activity_regularizer"] = penalty;
    } else {
      problems_.push_back(
          fmt::format("{0}: meshtrain does not support `activity_regularizer` inside {1}; give it "
                      "to the {1} itself, which penalizes its own output",
                      owner_of(layer), layer.class_name));
    }
    return config;
  }

  // A Constant of an array, as of word vectors made elsewhere, is no value of a config: where the
  // weights come along, they hold it. An array of one number is that number.
  Json without_arrays(const Json& config, const std::string& owner) {
    if (!config.is_structured()) {
      return config;
    }
    Json out = config;
    for (auto& [key, value] : out.items()) {
      const Json* const array = array_of_constant(value);
      if (array == nullptr) {
        value = without_arrays(value, owner);
      } else if (array->size() == 1 && array->at(0).is_number()) {
        value = {{"class_name", "Constant"}, {"config", {{"value", Json(array->at(0))}}}};
      } else if (!options_.initial_weights.empty()) {
        dropped_.push_back(
            fmt::format("{}, `{}`: a Constant of an array; the weights hold it", owner, key));
        value = "zeros";
      } else {
        problems_.push_back(
            fmt::format("{}, `{}`: a Constant of an array, for which there must be weights "
                        "(--weights FILE.weights.h5)",
                        owner, key));
        value = "zeros";
      }
    }
    return out;
  }

  // The array that a serialized Constant has; nullptr where `object` is none or has a number.
  static const Json* array_of_constant(const Json& object) {
    if (!object.is_object() || object.value("class_name", Json()) != "Constant") {
      return nullptr;
    }
    const Json* value = find_member(object, "config");
    for (const char* member : {"value", "config", "value"}) {
      if (value == nullptr || value->is_array()) {
        return value;
      }
      value = find_member(*value, member);
    }
    return value != nullptr && value->is_array() ? value : nullptr;
  }

  // Pooling: Keras writes strides that are the windows' size.
  void drop_implied(const KerasLayer& layer, GivenArgs& args) {
    const auto config = [&](const char* name) { return layer.config.value(name, Json()); };
    if (layer.class_name.find("Pooling") != std::string::npos &&
        config("strides") == config("pool_size")) {
      std::erase_if(args, [](const auto& arg) { return arg.first == "strides"; });
    }
  }

  void add_dtype(const KerasLayer& layer, const ClassSpec& spec, std::vector<std::string>& parts) {
    const auto dtype = layer.config.find("dtype");
    const std::string policy =
        dtype == layer.config.end() ? policy_ : policy_name(*dtype, path_of(layer));
    if (policy.empty() || policy == policy_) {
      return;
    }
    const ConfigValue value = values_.value(policy, *spec.find("dtype"), owner_of(layer));
    parts.push_back("dtype: " + yaml_flow(value));
  }

  static Json batch_shape(const KerasLayer& input) {
    return input.config.value("batch_shape", input.config.value("batch_input_shape", Json()));
  }

  std::vector<std::string> input_args(const KerasLayer& layer) {
    const Json& config = layer.config;
    const Json shape = batch_shape(layer);
    const ClassSpec& spec = *find_class(Category::kLayer, "Input");
    if (!shape.is_array() || shape.empty()) {
      problems_.push_back(fmt::format("{}: no `batch_shape`", owner_of(layer)));
      return {};
    }
    for (const char* key : {"sparse", "ragged", "optional"}) {
      if (config.value(key, Json(false)) != false) {
        problems_.push_back(fmt::format("{}: `{}` is not in meshtrain", owner_of(layer), key));
      }
    }
    std::vector<std::string> out;
    const auto add = [&](const char* name, const Json& json) {
      const ConfigValue value = values_.value(json, *spec.find(name), owner_of(layer));
      out.push_back(fmt::format("{}: {}", name, yaml_flow(value)));
    };
    add("shape", Json(shape.begin() + 1, shape.end()));
    if (!shape[0].is_null()) {
      add("batch_size", shape[0]);
    }
    const std::string dtype = policy_name(config.value("dtype", Json()));
    if (!dtype.empty() && dtype != dtype_name(dtype_policy(policy_).floatx())) {
      add("dtype", dtype);
    }
    return out;
  }

  // `inputs`, where it is not just the entry before; once in a Functional model, which a plain list
  // would make a Sequential.
  void add_inputs(size_t call, std::vector<std::string>& parts) {
    const std::vector<int>& inputs = model_.calls[call].inputs;
    const CallKeywords& keywords = model_.calls[call].keywords;
    std::vector<std::string> flags, roles;
    for (const std::string& flag : keywords.flags) {
      flags.push_back(flag + ": true");
    }
    if (keywords.leaves_mask) {
      flags.emplace_back("use_mask: false");
    }
    if (!flags.empty()) {
      parts.push_back(fmt::format("call: {{{}}}", join(flags, ", ")));
    }
    for (size_t i = 0; i < keywords.roles.size(); ++i) {
      roles.push_back(fmt::format("{}: {}", keywords.roles[i], yaml_text(names_[inputs[i]])));
    }
    if (!roles.empty()) {
      parts.push_back(fmt::format("inputs: {{{}}}", join(roles, ", ")));
      return;
    }
    const bool follows = inputs.size() == 1 && inputs[0] == entry_before(call);
    if (inputs.empty() || (follows && (call != 1 || model_.is_sequential))) {
      return;
    }
    std::vector<std::string> names;
    for (const int input : inputs) {
      names.push_back(yaml_text(names_[input]));
    }
    parts.push_back("inputs: " +
                    (names.size() == 1 ? names[0] : fmt::format("[{}]", join(names, ", "))));
  }

  // The last call before `call` that has an entry in the config.
  int entry_before(size_t call) const {
    int out = static_cast<int>(call) - 1;
    return out >= 0 && model_.calls[static_cast<size_t>(out)].result_of >= 0
               ? model_.calls[static_cast<size_t>(out)].result_of
               : out;
  }

  std::string outputs() {
    const auto& outputs = model_.outputs;
    if (!model_.outputs_are_named && outputs.size() == 1 &&
        outputs[0].second == entry_before(model_.calls.size())) {
      return "";
    }
    std::vector<std::string> parts;
    for (const auto& [name, call] : outputs) {
      parts.push_back(model_.outputs_are_named
                          ? fmt::format("{}: {}", yaml_key(name), yaml_text(names_[call]))
                          : yaml_text(names_[call]));
    }
    const char* brackets = model_.outputs_are_named ? "{}" : "[]";
    return fmt::format("  outputs: {}{}{}\n", brackets[0], join(parts, ", "), brackets[1]);
  }

  std::string head() const {
    std::string out =
        fmt::format("# {} of {}{}, imported by meshtrain.\n", printable(model_.name), options_.file,
                    options_.version.empty() ? "" : fmt::format(" (Keras {})", options_.version));
    for (const std::string& line : dropped_) {
      out += "# not taken over: " + line + "\n";
    }
    out +=
        "# To train it, say where the samples come from: data: {train: {source: npz, path: "
        "train.npz}}\n\n";
    if (const std::string name = std::filesystem::path(options_.file).stem().string();
        !name.empty() && name[0] != '.') {  // of the runs: else all imports share `config`
      out += fmt::format("name: {}\n\n", yaml_text(name));
    }
    return out + (policy_ == "float32" ? "" : fmt::format("dtype_policy: {}\n\n", policy_));
  }
  std::string model_name() const { return fmt::format("  name: {}\n", yaml_text(model_.name)); }
  std::string fit() const {
    std::string out;
    for (const KerasLayer& layer : model_.layers) {
      const Json shape = layer.class_name == "Input" ? batch_shape(layer) : Json();
      if (out.empty() && shape.is_array() && !shape.empty() && shape[0].is_number_integer()) {
        out = fmt::format("  batch_size: {}\n", shape[0].get<int64_t>());
      }
    }
    if (!options_.initial_weights.empty()) {
      out += fmt::format("  initial_weights: {}\n", yaml_text(options_.initial_weights));
    }
    return out.empty() ? "" : "\nfit:\n" + out;
  }

  const KerasModel& model_;
  const ImportOptions& options_;
  std::vector<std::string> problems_;
  ValueImporter values_;
  std::vector<std::string> dropped_;
  std::vector<std::string> names_;  // of the calls
  std::string policy_ = "float32";
};

}  // namespace

ImportedModel import_keras(const std::string& json, const ImportOptions& options) {
  if (json.find("keras_hub") != std::string::npos || json.find("keras_nlp") != std::string::npos) {
    const Json parsed = parse_keras_json(json, options.file);
    if (is_hub_model(parsed)) {
      return import_hub(parsed, options);
    }
  }
  KerasModel model = read_keras_graph(json, options.file);
  set_input_shapes(model, options.shapes);
  ImportedModel out = ConfigWriter(model, options).write();
  out.open_shapes = open_input_shapes(model);
  return out;
}

}  // namespace meshtrain
