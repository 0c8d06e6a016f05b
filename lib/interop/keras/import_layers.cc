#include "interop/keras/import_layers.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/cells.h"
#include "config/layer_names.h"
#include "config/other_names.h"
#include "interop/keras/import_ops.h"
#include "interop/keras/import_values.h"

namespace meshtrain {
namespace {

// Of a layer, or of one within it, what further_outputs() looks at.
ConfigObject partial_object(const std::string& class_name, const Json& config, int depth) {
  ConfigObject out;
  out.class_name = class_name;
  out.args["return_state"].data = config.value("return_state", Json()) == true;
  if (config.value("merge_mode", Json("concat")).is_null()) {
    out.args["merge_mode"].data = std::monostate{};
  } else {
    out.args["merge_mode"].data = std::string("concat");
  }
  const auto within = [&](const Json& layer) {
    ConfigValue value;
    const auto name = layer.is_object() ? layer.find("class_name") : layer.end();
    if (depth < 4 && name != layer.end() && name->is_string() && layer.contains("config") &&
        layer.at("config").is_object()) {
      value.data = std::make_shared<ConfigObject>(
          partial_object(name->get<std::string>(), layer.at("config"), depth + 1));
    }
    return value;
  };
  for (const char* name : {"layer", "cell"}) {
    if (const Json* layer = find_member(config, name)) {
      out.args[name] = within(*layer);
    }
  }
  ConfigValue::List cells;
  if (const Json* list = find_member(config, "cells"); list != nullptr && list->is_array()) {
    for (const Json& cell : *list) {
      cells.push_back(within(cell));
    }
    std::erase_if(cells, [](const ConfigValue& cell) { return cell.is_null(); });
  }
  out.args["cells"].data = std::move(cells);
  return out;
}

}  // namespace

void check_class(const Json& layer, const KerasLayer& imported, KerasJson& json) {
  const bool is_custom = is_custom_class(layer, imported.class_name);
  const Json* function = find_member(imported.config, "function");
  const bool is_expression = function != nullptr && function->is_string();  // of an operation
  if (imported.class_name == "Lambda" && !is_expression) {
    json.refuse(imported.name, imported.class_name,
                "holds Python code, which is never run; in the config of meshtrain write the "
                "function as an expression, such as `Lambda: =exp(-x)`",
                "E415");
  } else if (is_custom) {
    json.refuse(imported.name, imported.class_name,
                "is a class of your own, not one of Keras; layers of Keras in its "
                "place, `Lambda` with an expression or `blocks` can stand for it");
  } else if (imported.name.find('/') != std::string::npos) {
    json.refuse(imported.name, imported.class_name,
                "has a `/` in its name, which separates parts of paths");
  } else if (is_operation(layer)) {
    return;  // looked at when it is called, with its arguments
  } else if (imported.class_name != "InputLayer" &&
             (find_class(Category::kLayer, imported.class_name) == nullptr ||
              imported.class_name == "Call" || imported.class_name == "Repeat")) {
    const std::string instead = instead_of(Category::kLayer, imported.class_name);
    json.refuse(imported.name, imported.class_name,
                instead.empty() ? "is not in meshtrain" : "is not in meshtrain: " + instead);
  } else if (is_cell_class(imported.class_name)) {
    json.refuse(imported.name, imported.class_name,
                "is called by itself, for one step; here cells stand in an RNN: "
                "keras.layers.RNN(cell) over a sequence of one step gives the same");
  }
}

std::string drop_mixing(KerasLayer& layer) {
  const Json argument = layer.class_name == "MixUp" ? layer.config.value("alpha", Json(0.2))
                                                    : layer.config.value("factor", Json(1.0));
  std::string dropped = fmt::format(
      "layer `{}` ({}), which is an Identity here; `data: {{transform: [{{{}: {{{}: {}}}}}]}}` "
      "mixes inputs and targets in training",
      printable(layer.name), layer.class_name, layer.class_name,
      layer.class_name == "MixUp" ? "alpha" : "factor", printable(argument.dump()));
  layer.class_name = "Identity";
  Json config = {{"name", layer.config.at("name")}};
  for (const char* key : {"trainable", "dtype"}) {
    if (const Json* value = find_member(layer.config, key)) {
      config[key] = *value;
    }
  }
  layer.config = std::move(config);
  return dropped;
}

std::vector<std::string> further_outputs_of(const KerasLayer& layer, const CallKeywords& keywords) {
  ConfigObject entry;
  ConfigValue::Dict flags;
  for (const std::string& flag : keywords.flags) {
    flags.emplace_back(flag, ConfigValue{true});
  }
  entry.args["call"].data = std::move(flags);
  return further_outputs(partial_object(layer.class_name, layer.config, 0), entry);
}

const Json* distributed_model(const Json& layer) {
  const Json* config = find_member(layer, "config");
  const bool is_wrapper = layer.at("class_name") == "TimeDistributed" && config != nullptr;
  const Json* inner = is_wrapper && config->is_object() ? find_member(*config, "layer") : nullptr;
  const Json* name =
      inner != nullptr && inner->is_object() ? find_member(*inner, "class_name") : nullptr;
  return name != nullptr && name->is_string() && is_keras_model(*name) ? inner : nullptr;
}

std::vector<std::string> place_inputs(const KerasModel& model, std::vector<int>& inputs) {
  std::vector<size_t> at(inputs.size());  // which input has the place
  std::iota(at.begin(), at.end(), size_t{0});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const KerasCall& call = model.calls[static_cast<size_t>(inputs[i])];
    const std::string& name = model.layers[static_cast<size_t>(call.layer)].name;
    const std::optional<size_t> wanted =
        starts_with(name, "x") ? parse_number<size_t>(name.substr(1)) : std::nullopt;
    if (wanted && *wanted >= 1 && *wanted <= inputs.size()) {
      std::iter_swap(std::find(at.begin(), at.end(), i), at.begin() + (*wanted - 1));
    }
  }
  std::vector<std::string> names(inputs.size(), "x");
  std::vector<int> placed;
  for (size_t place = 0; place < at.size(); ++place) {
    names[at[place]] = at.size() == 1 ? "x" : fmt::format("x{}", place + 1);
    placed.push_back(inputs[at[place]]);
  }
  inputs = std::move(placed);
  return names;
}

}  // namespace meshtrain
