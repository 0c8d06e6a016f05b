// What the files of StepGraphs share: step_graph.cc builds a step, step_outputs.cc resolves losses
// and metrics, step_update.cc changes the weights.
#pragma once

#include <utility>
#include <vector>

#include "engine/step_graph.h"

namespace meshtrain {

// A graph in the making: the values that its parts share.
struct StepGraphs::Frame {
  Graph graph;
  Builder builder{graph};
  int64_t batch = 0;
  Optimizer::State optimizer;  // when training
  ValueId step = kNone;        // what random numbers depend on
  ValueId sample_weight = kNone;
  std::vector<ValueId> parameters;  // beside the model's weights
  std::vector<ValueId> moved;       // new values of weights that layers change, or kNone
  std::vector<ValueId> targets;
  std::vector<ValueId> predictions;
  std::vector<ValueId> masks;   // of the predictions' steps, or kNone
  std::vector<ValueId> losses;  // of each entry of losses_
  ValueId loss = kNone;         // their weighted sum and the penalties
  std::vector<ValueId> penalties;
  std::vector<std::pair<ValueId, size_t>> penalized;  // values of weights with a regularizer
};

// Logs of `run.log_norms`, in the order of update_norms().
inline constexpr const char* kNorms[] = {"gradient_norm", "weight_norm", "update_ratio"};

Shape with_batch(int64_t batch, const Shape& shape);
// One that does not train.
Variable scalar_variable(std::string path, DType dtype, VariableRole role);

}  // namespace meshtrain
