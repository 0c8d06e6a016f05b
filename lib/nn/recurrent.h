// What recurrent layers and their cells share.
#pragma once

#include <string>
#include <vector>

#include "ir/ops/rnn.h"
#include "nn/layers.h"

namespace meshtrain {

// SimpleRNNCell, LSTMCell, GRUCell and StackedRNNCells (recurrent_cells.cc).
std::vector<LayerEntry> recurrent_cells();
// The cells of ConvLSTM1D, 2D and 3D (conv_lstm.cc), which have no class in a config.
std::vector<LayerEntry> conv_lstm_cells();

// Whether this is the path of a state that a stateful layer keeps: "lstm/rnn_state".
bool is_rnn_state(std::string_view path);
// LSTM's bias: the part of the forget gate, from `units` on, begins as one.
Initializer with_forget_bias(Initializer initializer, int64_t units);
// The name that scan_rnn has for an argument's activation (ir/ops/rnn.h); empty where it has none,
// or has it with other arguments.
std::string scan_activation(const ConfigObject& config, const char* argument);
// The rate of `dropout` or `recurrent_dropout` in this call; 0 where nothing is dropped.
double dropout_rate(const CallContext& context, const ConfigObject& config, const char* argument);

// scan_rnn (ir/ops/rnn.h) of a cell with the activations of `config`. `operands`: those before the
// mask. kNone: no mask, nothing dropped. Returns the states of all steps: h, and c of LSTM.
ValueList add_scan(Builder& b, const ConfigObject& config, const std::string& cell,
                   ValueList operands, ValueId mask, ValueId drop);

// Reports, through argument_error(argument, what), activations of a cell that scan_rnn has not.
template <class F>
bool takes_scan_activations(const ConfigObject& config, const F& argument_error) {
  bool ok = true;
  for (const char* argument : {"activation", "recurrent_activation"}) {
    if (scan_activation(config, argument).empty()) {
      argument_error(argument, "is none of those that recurrent layers have")
          .help(fmt::format("write one of these, without arguments: {}",
                            fmt::join(rnn_activations(), ", ")));
      ok = false;
    }
  }
  return ok;
}

}  // namespace meshtrain
