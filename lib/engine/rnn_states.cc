#include "engine/rnn_states.h"

#include "exec/executor.h"
#include "nn/recurrent.h"

namespace meshtrain {

VariableValues read_rnn_states(Engine& engine) {
  VariableValues values;
  const std::vector<std::string> weights = engine.weight_paths();  // the first variables
  for (size_t w = 0; w < weights.size(); ++w) {
    if (is_rnn_state(weights[w])) {
      const int variable = static_cast<int>(w);
      values.emplace_back(variable, engine.store().read(variable));
    }
  }
  return values;
}

void reset_rnn_states(Engine& engine) {
  VariableValues values = read_rnn_states(engine);
  for (auto& [variable, value] : values) {
    value = HostTensor(value.dtype(), value.shape());
  }
  write_variables(engine, values);
}

void write_variables(Engine& engine, const VariableValues& values) {
  for (const auto& [variable, value] : values) {
    engine.store().write(variable, value);
  }
}

}  // namespace meshtrain
