// What recurrent layers and their cells share.
#pragma once

#include <string>
#include <vector>

#include "nn/layers.h"

namespace meshtrain {

// SimpleRNNCell, LSTMCell, GRUCell and StackedRNNCells (recurrent_cells.cc).
std::vector<LayerEntry> recurrent_cells();

// Whether this is the path of a state that a stateful layer keeps: "lstm/rnn_state".
bool is_rnn_state(std::string_view path);
// LSTM's bias: the part of the forget gate, from `units` on, begins as one.
Initializer with_forget_bias(Initializer initializer, int64_t units);
// The name that scan_rnn has for an argument's activation (ir/ops/rnn.h); empty where it has none,
// or has it with other arguments.
std::string scan_activation(const ConfigObject& config, const char* argument);
// The rate of `dropout` or `recurrent_dropout` in this call; 0 where nothing is dropped.
double dropout_rate(const CallContext& context, const ConfigObject& config, const char* argument);

}  // namespace meshtrain
