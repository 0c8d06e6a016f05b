#include "passes/step_dims.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshtrain {

void refuse_node(const Node& node, std::string_view why) {
  throw StepObstacle{fmt::format("`{}` ({}) {}", node.path, node.op->name, why)};
}

int step_factor(const Node& node, const ShardingRule& rule, std::span<const int> dims) {
  int found = kNone;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == kNone)
      continue;
    const FactorList& factors = rule.operands[i][static_cast<size_t>(dims[i])];
    if (factors.size() != 1 || (found != kNone && factors[0] != found))
      refuse_node(node, kJoinsSteps);
    found = factors[0];
  }
  if (rule.factors[static_cast<size_t>(found)].kind != FactorKind::kPass)
    refuse_node(node, kJoinsSteps);
  return found;
}

int step_dim(const Node& node, const TensorFactors& tensor, int factor) {
  int found = kNone;
  for (size_t d = 0; d < tensor.size(); ++d) {
    if (std::find(tensor[d].begin(), tensor[d].end(), factor) == tensor[d].end())
      continue;
    if (tensor[d].size() != 1 || found != kNone)
      refuse_node(node, kJoinsSteps);
    found = static_cast<int>(d);
  }
  return found;
}

}  // namespace meshtrain
