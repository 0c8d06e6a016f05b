#include "passes/head_input.h"

#include <set>
#include <vector>

#include "ir/op.h"

namespace meshtrain {
namespace {

// Of each value: whether it depends on an input.
std::vector<bool> find_dependent(const Graph& graph) {
  std::vector<bool> dependent(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    bool is_dependent = node.op->kind == OpKind::kInput;
    for (const ValueId input : node.inputs)
      is_dependent = is_dependent || dependent[static_cast<size_t>(input)];
    for (const ValueId output : node.outputs)
      dependent[static_cast<size_t>(output)] = is_dependent;
  }
  return dependent;
}

}  // namespace

// Takes the nodes from the last one on, so that all which a softmax reads of a product is found
// before the product itself.
ValueId head_input(const Graph& graph, ValueId output) {
  const std::vector<bool> dependent = find_dependent(graph);
  std::set<NodeId> open = {graph.values[static_cast<size_t>(output)].producer};
  while (!open.empty()) {
    const NodeId last = *open.rbegin();
    open.erase(last);
    const Node& node = graph.nodes[static_cast<size_t>(last)];
    std::vector<ValueId> read;
    for (const ValueId input : node.inputs) {
      if (dependent[static_cast<size_t>(input)])
        read.push_back(input);
    }
    if (node.op->is_product)
      return open.empty() && read.size() == 1 ? read[0] : kNone;
    for (const ValueId input : read)
      open.insert(graph.values[static_cast<size_t>(input)].producer);
  }
  return kNone;
}

}  // namespace meshtrain
