// How Keras' layers are called: what of a call is given by place, and what by name.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/model.h"

namespace meshtrain {

struct CallArguments {
  std::vector<int> args;                             // calls whose results are given by place
  bool as_list = false;                              // all of them are one list
  std::vector<std::pair<std::string, int>> tensors;  // by name
  std::vector<std::pair<std::string, bool>> flags;
  std::vector<std::vector<int>> initial_state;
  // What Keras' layer does not take, as the config has it, and why; it is left out.
  std::string untaken, reason;

  // Whether it is all that a Sequential can say: one tensor.
  bool is_plain() const {
    return args.size() == 1 && tensors.empty() && flags.empty() && initial_state.empty() &&
           untaken.empty();
  }
};

// The states of a recurrent layer that are among its inputs or outputs, `calls`, as Keras has them:
// the two of an LSTMCell in a stack are a list of their own. Other outputs stand before them.
std::vector<std::vector<int>> nested_states(const ConfigObject& layer, std::span<const int> calls);

// Call `call`, which is of a layer, not of an Input or a Lambda.
CallArguments call_arguments(const Model& model, int call);

}  // namespace meshtrain
