// The dimension of steps of the values of a graph of sequences, by the sharding rules: an op for
// which it is a pass factor treats each step by itself.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ir/op.h"

namespace meshtrain {

// Why steps are not independent: "`lstm/reverse` (reverse) joins steps".
struct StepObstacle {
  std::string text;
};
[[noreturn]] void refuse_node(const Node& node, std::string_view why);
inline constexpr const char* kJoinsSteps = "joins steps";

// Returns the factor of steps: that of all operands which have steps. `dims`: the dimension of
// steps of each operand, kNone where it has none; one of them has steps. Throws StepObstacle where
// steps are joined.
int step_factor(const Node& node, const ShardingRule& rule, std::span<const int> dims);

// Returns the dimension that is the factor of steps, kNone where there is none. Throws StepObstacle
// where a dimension has others beside it.
int step_dim(const Node& node, const TensorFactors& tensor, int factor);

}  // namespace meshtrain
