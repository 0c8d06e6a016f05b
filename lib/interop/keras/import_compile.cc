#include "interop/keras/import_compile.h"

#include <algorithm>

#include "base/text.h"
#include "config/flow.h"
#include "config/schema.h"
#include "interop/keras/import_values.h"

namespace meshtrain {
namespace {

class CompileWriter {
 public:
  CompileWriter(const KerasModel& model, const std::vector<std::string>& names,
                std::vector<std::string>& dropped)
      : model_(model), names_(names), dropped_(dropped) {}

  std::string write() {
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

 private:
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

  const KerasModel& model_;
  const std::vector<std::string>& names_;
  std::vector<std::string>& dropped_;
};

}  // namespace

std::string imported_compile(const KerasModel& model, const std::vector<std::string>& names,
                             std::vector<std::string>& dropped) {
  return CompileWriter(model, names, dropped).write();
}

}  // namespace meshtrain
