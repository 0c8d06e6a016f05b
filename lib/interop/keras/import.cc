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
    std::string body = layers() + outputs();
    std::string training = compile();
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
      args = values_.arguments(spec, layer.config, owner_of(layer), {"name", "dtype", "inputs"});
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
      parts.push_back(fmt::format("{}: {}", name, yaml_flow(value)));
    }
    add_inputs(call, parts);
    if (parts.empty()) {
      return fmt::format("    - {}\n", layer.class_name);
    }
    return fmt::format("    - {}: {{{}}}\n", layer.class_name, join(parts, ", "));
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

  std::vector<std::string> input_args(const KerasLayer& layer) {
    const Json& config = layer.config;
    const Json shape = config.value("batch_shape", config.value("batch_input_shape", Json()));
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
                          ? fmt::format("{}: {}", yaml_text(name), yaml_text(names_[call]))
                          : yaml_text(names_[call]));
    }
    const char* brackets = model_.outputs_are_named ? "{}" : "[]";
    return fmt::format("  outputs: {}{}{}\n", brackets[0], join(parts, ", "), brackets[1]);
  }

  std::string compile() {
    if (!model_.compile.is_object() || model_.compile.empty()) {
      return "";
    }
    const Section& section = *root_section().find("compile")->section;
    std::string out;
    for (const Spec& field : section.fields) {
      const auto given = model_.compile.find(field.name);
      if (given == model_.compile.end() || given->is_null() ||
          field.kind == ValueKind::kUnsupported || (given->is_structured() && given->empty())) {
        continue;
      }
      std::vector<std::string> problems;
      const Json own = field.name == "optimizer" ? without_model_name(*given) : *given;
      ConfigValue value = ValueImporter(problems).value(by_output(own, field), field, field.name);
      if (field.name == "optimizer" && !problems.empty()) {
        value = optimizer_without_rate(*given, field, problems);
      }
      if (!problems.empty() && ends_with(field.name, "metrics")) {
        value = known_metrics(by_output(*given, field), field, problems);
      }
      for (const std::string& problem : problems) {
        dropped_.push_back("compile: " + problem);
      }
      if (problems.empty() || !value.is_null()) {
        out += line(field.name, value);
      }
    }
    return out.empty() ? "" : "\ncompile:\n" + out;
  }

  // The optimizer with the keys of a MultiOptimizer as paths of weights here, which do not begin
  // with the name of a Sequential.
  Json without_model_name(const Json& optimizer) const {
    if (!optimizer.is_object()) {
      return optimizer;
    }
    Json out = Json::object();
    const bool is_map =
        optimizer.contains("class_name") && optimizer["class_name"] == "OptimizerMap";
    for (const auto& [key, value] : optimizer.items()) {
      out[key] = without_model_name(value);
    }
    const std::string prefix = model_.name + "/";
    if (is_map && model_.is_sequential && out["config"].contains("optimizer_map")) {
      Json members = Json::object();
      for (const auto& [key, member] : out["config"]["optimizer_map"].items()) {
        members[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = member;
      }
      out["config"]["optimizer_map"] = std::move(members);
    }
    return out;
  }

  // The metrics that are here without those that are not, which are the problems.
  static ConfigValue known_metrics(const Json& given, const Spec& field,
                                   std::vector<std::string>& problems) {
    problems.clear();
    const Json known = known_entries(given, field, problems);
    std::vector<std::string> none;
    return known.empty() ? ConfigValue{} : ValueImporter(none).value(known, field, field.name);
  }

  static Json known_entries(const Json& given, const Spec& field,
                            std::vector<std::string>& problems) {
    if (given.is_object() && !given.contains("class_name")) {
      Json out = Json::object();
      for (const auto& [key, value] : given.items()) {
        if (Json known = known_entries(value, field, problems); !known.empty()) {
          out[key] = std::move(known);
        }
      }
      return out;
    }
    Json out = Json::array();
    for (const Json& entry : given.is_array() ? given : Json::array({given})) {
      std::vector<std::string> others;
      ValueImporter(others).value(Json::array({entry}), field, field.name);
      problems.insert(problems.end(), others.begin(), others.end());
      if (others.empty()) {
        out.push_back(entry);
      }
    }
    return out;
  }

  // The optimizer with its default rate where only the rate, a schedule of one's own, is not known
  // here; else null, and the problems say that there is none.
  static ConfigValue optimizer_without_rate(const Json& given, const Spec& field,
                                            std::vector<std::string>& problems) {
    Json plain = given;
    const Json* config = plain.is_object() ? find_member(plain, "config") : nullptr;
    std::vector<std::string> others;
    ConfigValue value;
    if (config != nullptr && config->is_object() && config->contains("learning_rate")) {
      plain["config"].erase("learning_rate");
      value = ValueImporter(others).value(plain, field, field.name);
    }
    const bool is_known = config != nullptr && others.empty() && value.is_object();
    problems.back() += is_known ? "; the optimizer is here with its default learning rate"
                                : "; without another one the optimizer is RMSprop, the default";
    return is_known ? value : ConfigValue{};
  }

  // Keras' list of metrics has one entry for each output; ours has the names.
  Json by_output(const Json& given, const Spec& field) const {
    if (given.is_object() && !given.contains("class_name")) {
      Json out = Json::object();
      for (const auto& [key, value] : given.items()) {
        out[output_named(key)] = value;
      }
      return out;
    }
    if (field.kind != ValueKind::kObjectsPerOutput || !given.is_array()) {
      return given;
    }
    Json out;
    const size_t count = model_.outputs.size();
    if (count == 1) {
      return given.size() == 1 && given[0].is_array() ? given[0] : given;
    }
    for (size_t i = 0; i < std::min(count, given.size()); ++i) {
      const auto& [name, call] = model_.outputs[i];
      out[model_.outputs_are_named ? name : names_[call]] = given[i];
    }
    return out;
  }

  // Keras calls a further output as its layer: "encoder.state_h" for "encoder", and the output of a
  // nested model as the model.
  std::string output_named(const std::string& key) const {
    const auto is_output = [&](const auto& output) { return output.first == key; };
    for (size_t i = 0; i < model_.outputs.size(); ++i) {
      const bool has_name = i < model_.output_names_in_keras.size();
      if (!model_.outputs_are_named && has_name && model_.output_names_in_keras[i] == key &&
          std::none_of(model_.outputs.begin(), model_.outputs.end(), is_output)) {
        return model_.outputs[i].first;
      }
    }
    std::string further;
    for (const auto& [name, call] : model_.outputs) {
      if (name == key || (name.starts_with(key + ".") && !further.empty())) {
        return key;
      }
      further = name.starts_with(key + ".") ? name : further;
    }
    return further.empty() ? key : further;
  }

  // An object with arguments has a line of its own.
  static std::string line(const std::string& key, const ConfigValue& value) {
    const std::string text = yaml_flow(value);
    return value.is_object() && text[0] == '{'
               ? fmt::format("  {}:\n    {}\n", key, text.substr(1, text.size() - 2))
               : fmt::format("  {}: {}\n", key, text);
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
    return options_.initial_weights.empty() ? ""
                                            : fmt::format("\nfit:\n  initial_weights: {}\n",
                                                          yaml_text(options_.initial_weights));
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
  KerasModel model = read_keras_graph(json, options.file);
  set_input_shapes(model, options.shapes);
  ImportedModel out = ConfigWriter(model, options).write();
  out.open_shapes = open_input_shapes(model);
  return out;
}

}  // namespace meshtrain
