// The states that stateful recurrent layers keep from batch to batch.
#pragma once

#include <utility>
#include <vector>

#include "engine/engine.h"

namespace meshtrain {

// Variables of the store, and their values.
using VariableValues = std::vector<std::pair<int, HostTensor>>;

VariableValues read_rnn_states(Engine& engine);
// Makes them zeros.
void reset_rnn_states(Engine& engine);
void write_variables(Engine& engine, const VariableValues& values);

}  // namespace meshtrain
