// Keras' graph of a functional model: the calls of layers, and the operations that Keras adds by
// itself, for masks of steps and for casts of mixed precision. Source: Keras 3.15.1
// layers/layer.py __call__ and compute_mask of the layers.
#pragma once

#include <vector>

#include "nn/model.h"

namespace meshtrain {

// What a node takes: another one, so many operations before it. Between the two lie casts, or all
// but one of a Lambda's operations.
struct CallStep {
  int node = 0;
  int operations = 1;
};

// A call of an operation: of a layer, of an input, or of one that belongs to a mask.
struct CallNode {
  int operation = 0;
  std::vector<CallStep> takes;  // arguments in order, then those with names, sorted
};

struct CallNodes {
  std::vector<CallNode> nodes;  // those that a node takes stand before it
  std::vector<int> of_call;     // call of the model -> node
  std::vector<int> first_call;  // operation -> call, kNone where it belongs to a mask
};
CallNodes call_nodes(const Model& model);

}  // namespace meshtrain
