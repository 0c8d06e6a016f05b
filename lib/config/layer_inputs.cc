#include "config/layer_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/cells.h"

namespace meshtrain {
namespace {

constexpr std::string_view kTwo[] = {"Subtract", "Dot", "CustomScaleLayer"};
constexpr std::string_view kOneOrTwo[] = {"GlobalAveragePooling1D", "CategoryEncoding",
                                          "SplitSteps"};
constexpr std::string_view kMany[] = {"Add",     "Multiply", "Average",
                                      "Maximum", "Minimum",  "Concatenate"};

bool takes_two(std::string_view name) {
  return is_one_of(name, kTwo);
}
bool takes_several(std::string_view name) {
  return takes_two(name) || is_one_of(name, kMany);
}

// What the inputs are called in a map, in the order of a list; the first cannot be left out.
std::vector<std::string> input_names(const ConfigObject& layer) {
  const std::string& name = layer.class_name;
  if (is_recurrent_class(name)) {
    std::vector<std::string> out = {"sequences"};
    const auto append = [&](const std::vector<std::string>& names) {
      out.insert(out.end(), names.begin(), names.end());
    };
    const auto inner = layer.args.find("layer");
    if (name != "Bidirectional") {
      append(state_names(layer, "state"));
    } else if (inner != layer.args.end() && inner->second.is_object()) {
      append(state_names(inner->second.object(), "forward"));
      append(state_names(inner->second.object(), "backward"));
    }
    return out;
  }
  return name == "GlobalAveragePooling1D" ? std::vector<std::string>{"inputs", "mask"}
         : name == "CategoryEncoding"     ? std::vector<std::string>{"inputs", "count_weights"}
         : name == "SplitSteps"           ? std::vector<std::string>{"merged", "before"}
                                          : std::vector<std::string>{"inputs"};
}

// The place of an input of that name; shorter spellings of sequences and states are known. The only
// input of a layer may have any name.
std::optional<size_t> place_of(const std::string& given, const std::vector<std::string>& names) {
  const bool is_recurrent = names[0] == "sequences";
  if (names.size() == 1) {
    return 0;
  }
  if (is_recurrent && (given == "sequence" || given == "inputs")) {
    return 0;
  }
  const bool is_state = given == "initial_state" || given == "state";
  if (is_recurrent && names.size() == 2 && is_state) {
    return 1;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (given == names[i] || (is_recurrent && "state_" + given == names[i])) {
      return i;
    }
  }
  return std::nullopt;
}

void report_name(const LayerConfig& layer, const std::string& class_name, const ConfigValue& value,
                 const std::string& given, const std::vector<std::string>& names,
                 Diagnostics& diagnostics) {
  Diagnostic& d = diagnostics.error(
      "E121", value.loc,
      fmt::format("layer `{}` ({}) has no input `{}`", layer.name.value, class_name, given));
  const bool is_mask = given.find("mask") != std::string::npos;
  if (is_mask && names[0] == "sequences") {
    d.help(
        "steps are masked by the layers before it: `Masking`, or `mask_zero: true` of an "
        "Embedding");
  }
  if (!suggest(d, given, names)) {
    d.help(fmt::format("its inputs are {}", join(names, ", ")));
  }
}

// Puts the inputs of a map in order.
void order_inputs(LayerConfig& layer, const ConfigObject& acting, const ConfigValue& map,
                  Diagnostics& diagnostics) {
  const std::vector<std::string> names = input_names(acting);
  std::vector<std::optional<Located<std::string>>> ordered(names.size());
  size_t i = 0;
  for (const auto& [given, value] : map.dict()) {
    const std::optional<size_t> place = place_of(given, names);
    if (!place) {
      report_name(layer, acting.class_name, value, given, names, diagnostics);
    } else if (ordered[*place]) {
      diagnostics.error(
          "E121", value.loc,
          fmt::format("layer `{}` has its input `{}` twice", layer.name.value, names[*place]));
    } else {
      ordered[*place] = layer.inputs[i];
    }
    ++i;
  }
  layer.inputs.clear();
  for (size_t place = 0; place < ordered.size(); ++place) {
    if (ordered[place]) {
      layer.inputs.push_back(*ordered[place]);
    } else if (place == 0 && !diagnostics.has_errors()) {
      diagnostics.error("E121", map.loc,
                        fmt::format("layer `{}` ({}) lacks its input `{}`", layer.name.value,
                                    acting.class_name, names[0]));
    }
  }
}

// The map that names the inputs of a layer without names for them, or null.
const ConfigValue* unordered_map(const LayerConfig& layer, const std::string& class_name) {
  const ClassSpec* spec = find_class(Category::kLayer, class_name);
  const auto given = layer.object.args.find("inputs");
  const bool is_map = given != layer.object.args.end() && given->second.is_dict();
  const bool keeps_names = spec == nullptr || spec->has_roles || class_name == "Lambda";
  // An input that is no layer is reported already.
  const bool is_whole = is_map && given->second.dict().size() == layer.inputs.size();
  return is_whole && !keeps_names ? &given->second : nullptr;
}

void check_count(const LayerConfig& layer, const std::string& class_name,
                 Diagnostics& diagnostics) {
  const size_t count = layer.inputs.size();
  const ClassSpec* spec = find_class(Category::kLayer, class_name);
  // Layers with roles check their inputs themselves, and recurrent ones their states.
  const bool is_known = spec != nullptr && !spec->has_roles && !is_recurrent_class(class_name);
  const bool is_several = takes_several(class_name), is_two = takes_two(class_name);
  if (is_several && (count < 2 || (is_two && count > 2)) && !diagnostics.has_errors()) {
    diagnostics
        .error("E121", layer.object.loc,
               fmt::format("layer `{}` ({}) takes {} two inputs, not {}", layer.name.value,
                           class_name, is_two ? "exactly" : "at least", count))
        .help("write `inputs: [first, second]` with the names of earlier layers");
    return;
  }
  const bool may_be_two = is_one_of(class_name, kOneOrTwo);
  if (!is_several && is_known && class_name != "Input" && class_name != "Lambda" &&
      count > (may_be_two ? 2 : 1)) {
    diagnostics.error("E121", layer.object.loc,
                      fmt::format("layer `{}` ({}) takes {}, not {}", layer.name.value, class_name,
                                  may_be_two ? "one or two inputs" : "one input", count));
  }
}

}  // namespace

void bind_inputs(LayerConfig& layer, const ConfigObject* acting, Diagnostics& diagnostics) {
  const std::string class_name = acting == nullptr ? "Call" : acting->class_name;
  const ConfigValue* map = acting == nullptr ? nullptr : unordered_map(layer, class_name);
  if (map != nullptr) {
    layer.input_roles.clear();
    if (takes_several(class_name)) {
      diagnostics
          .error("E121", map->loc,
                 fmt::format("the inputs of layer `{}` ({}) have no names", layer.name.value,
                             class_name))
          .help("write them as a list: `inputs: [first, second]`");
      return;
    }
    order_inputs(layer, *acting, *map, diagnostics);
  }
  check_count(layer, class_name, diagnostics);
}

}  // namespace meshtrain
