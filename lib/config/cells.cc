#include "config/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/layer_names.h"

namespace meshtrain {
namespace {

std::vector<std::string> states_of_cell(std::string_view class_name, const std::string& prefix) {
  std::vector<std::string> out = {prefix + "_h"};
  if (class_name.starts_with("LSTM") || class_name.starts_with("ConvLSTM")) {
    out.push_back(prefix + "_c");
  }
  return out;
}

// The layers that a Bidirectional holds.
constexpr const char* kDirections[] = {"layer", "backward_layer"};

bool holds_layer(const ConfigObject& layer, const char* name) {
  const auto inner = layer.args.find(name);
  return layer.class_name == "Bidirectional" && inner != layer.args.end() &&
         inner->second.is_object();
}

}  // namespace

bool is_recurrent_class(std::string_view class_name) {
  constexpr std::array<std::string_view, 8> kRecurrent = {
      "SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional"};
  return std::find(kRecurrent.begin(), kRecurrent.end(), class_name) != kRecurrent.end();
}

bool is_cell_class(std::string_view class_name) {
  return class_name.ends_with("Cell") || class_name == "StackedRNNCells";
}

std::string inner_name(const ConfigObject& layer) {
  const auto name = layer.args.find("name");
  return name != layer.args.end() && name->second.is_string() ? name->second.string()
                                                              : to_snake_case(layer.class_name);
}

std::vector<NamedCell> cells_of_stack(const ConfigObject& stack) {
  std::vector<NamedCell> out;
  NameCounter counter;
  for (const ConfigValue& entry : stack.arg("cells").list()) {
    const ConfigObject& cell = entry.object();
    out.push_back({cell.has("name") ? inner_name(cell) : counter.next(cell.class_name), &cell});
  }
  return out;
}

std::vector<std::string> state_names(const ConfigObject& layer, const std::string& prefix) {
  const auto cell = layer.args.find("cell");
  if (layer.class_name != "RNN" || cell == layer.args.end() || !cell->second.is_object()) {
    return states_of_cell(layer.class_name, prefix);
  }
  const ConfigObject& object = cell->second.object();
  if (object.class_name != "StackedRNNCells") {
    return states_of_cell(object.class_name, prefix);
  }
  std::vector<std::string> out;
  int number = 0;
  for (const ConfigValue& each : object.arg("cells").list()) {
    const std::vector<std::string> states =
        states_of_cell(each.object().class_name, fmt::format("{}_{}", prefix, ++number));
    out.insert(out.end(), states.begin(), states.end());
  }
  return out;
}

bool is_stateful(const ConfigObject& layer) {
  const auto own = layer.args.find("stateful");
  return (own != layer.args.end() && own->second.is_bool() && own->second.boolean()) ||
         std::any_of(std::begin(kDirections), std::end(kDirections), [&](const char* name) {
           return holds_layer(layer, name) && is_stateful(layer.arg(name).object());
         });
}

void set_state_batch(ConfigObject& layer, int64_t batch_size) {
  layer.args[kStateBatch].data = batch_size;
  for (const char* name : kDirections) {
    if (holds_layer(layer, name)) {
      auto inner = std::make_shared<ConfigObject>(layer.arg(name).object());
      set_state_batch(*inner, batch_size);
      layer.args[name].data = std::move(inner);
    }
  }
}

bool takes_cells(const Spec& spec) {
  return spec.kind == ValueKind::kObject && spec.name == "cell";
}

YamlNode stacked_cells(const YamlNode& list) {
  YamlNode stack;
  stack.kind = YamlNode::Kind::kMap;
  stack.loc = list.loc;
  stack.children.push_back(list);
  stack.children[0].key = "StackedRNNCells";
  stack.children[0].key_loc = list.loc;
  return stack;
}

}  // namespace meshtrain
