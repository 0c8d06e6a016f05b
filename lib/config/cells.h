// Recurrent layers and their cells, as a config has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/object.h"
#include "config/spec.h"
#include "config/yaml.h"

namespace meshtrain {

// Whether layers of this class have steps and states: LSTM, RNN, Bidirectional, ...
bool is_recurrent_class(std::string_view class_name);
// Whether it is a cell, which only RNN takes.
bool is_cell_class(std::string_view class_name);

// A cell of a StackedRNNCells.
struct NamedCell {
  std::string name;  // in paths of variables, given or automatic: "lstm_cell_1"
  const ConfigObject* object = nullptr;
};
// The cells of `stack`, a StackedRNNCells, in order.
std::vector<NamedCell> cells_of_stack(const ConfigObject& stack);
// The name of a layer that is written within another one: its own, else its class'.
std::string inner_name(const ConfigObject& layer);

// The states that `return_state` makes outputs of a recurrent layer other than a Bidirectional, in
// Keras' order, as names: "state_h" and "state_c" where `prefix` is "state". Where there are
// several cells, each name has the number of its cell.
std::vector<std::string> state_names(const ConfigObject& layer, const std::string& prefix);

// Whether a layer, or one within a Bidirectional, keeps its states from batch to batch.
bool is_stateful(const ConfigObject& layer);
// The argument that such a layer gets beside those of the catalogue: the `batch_size` of the
// model's Inputs.
inline constexpr const char* kStateBatch = "state_batch";
void set_state_batch(ConfigObject& layer, int64_t batch_size);

// RNN's argument `cell` as Keras reads it: a list of cells stands for a StackedRNNCells.
bool takes_cells(const Spec& spec);
YamlNode stacked_cells(const YamlNode& list);

}  // namespace meshtrain
