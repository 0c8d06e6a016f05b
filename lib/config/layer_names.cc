#include "config/layer_names.h"

#include <fmt/format.h>

#include "base/text.h"
#include "config/cells.h"
#include "config/object_form.h"

namespace meshtrain {

std::string automatic_name(const std::string& spelled) {
  const ClassSpec* spec = find_class(Category::kLayer, spelled);
  const std::string& class_name = spec == nullptr ? spelled : spec->name;
  // Keras names a layer by its class, which its exported name need not be.
  return class_name == "Input"                 ? "input_layer"
         : class_name == "GroupQueryAttention" ? "grouped_query_attention"
                                               : to_snake_case(class_name);
}

std::string NameCounter::next(const std::string& spelled) {
  const std::string base = automatic_name(spelled);
  const int used = counts_[base]++;
  return used == 0 ? base : fmt::format("{}_{}", base, used);
}

std::vector<std::string> entry_names(const YamlNode& list, Category category) {
  NameCounter counter;
  std::vector<std::string> names;
  for (const YamlNode& entry : list.children) {
    const auto form = object_form(entry, category);
    if (!form) {
      names.emplace_back();
      continue;
    }
    const YamlNode* given = form->args == nullptr ? nullptr : form->args->find("name");
    if (category != Category::kLayer) {
      names.push_back(form->spelled);
    } else if (given != nullptr && given->is_scalar()) {
      names.push_back(given->text);
    } else {
      names.push_back(counter.next(form->spelled));
    }
  }
  return names;
}

namespace {

bool returns_state(const ConfigObject& layer) {
  const auto given = layer.args.find("return_state");
  return given != layer.args.end() && given->second.is_bool() && given->second.boolean();
}

bool returns_scores(const ConfigObject& entry) {
  const auto call = entry.args.find("call");
  if (call == entry.args.end() || !call->second.is_dict()) {
    return false;
  }
  for (const auto& [name, value] : call->second.dict()) {
    if (name == "return_attention_scores") {
      return value.is_bool() && value.boolean();
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> further_outputs(const ConfigObject& layer, const ConfigObject& entry) {
  if (returns_scores(entry)) {
    return {"attention_scores"};
  }
  if (layer.class_name != "Bidirectional") {
    return returns_state(layer) ? state_names(layer, "state") : std::vector<std::string>();
  }
  std::vector<std::string> out;
  const auto inner = layer.args.find("layer"), mode = layer.args.find("merge_mode");
  if (mode != layer.args.end() && mode->second.is_null()) {
    out.emplace_back("backward");
  }
  if (inner != layer.args.end() && inner->second.is_object() &&
      returns_state(inner->second.object())) {
    for (const char* prefix : {"forward", "backward"}) {
      const std::vector<std::string> states = state_names(inner->second.object(), prefix);
      out.insert(out.end(), states.begin(), states.end());
    }
  }
  return out;
}

std::string_view argument_of_shared_layer(std::string_view class_name) {
  return class_name == "Call" ? "layer" : class_name == "MaskedLMHead" ? "token_embedding" : "";
}

std::pair<std::string, std::string> split_output(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::pair{name, std::string()}
                                  : std::pair{name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace meshtrain
