#include "interop/keras/layer_order.h"

#include <algorithm>
#include <numeric>

#include "interop/keras/call_nodes.h"

namespace meshtrain {
namespace {

// Calls that are outputs in the order in which Keras looks at them: a map's by name.
std::vector<int> flattened_outputs(const Model& model) {
  std::vector<int> order(model.outputs().size());
  std::iota(order.begin(), order.end(), 0);
  if (has_named_outputs(model)) {
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return model.output_names()[a] < model.output_names()[b]; });
  }
  for (int& entry : order) {
    entry = model.outputs()[entry];
  }
  return order;
}

// A walk from the outputs towards the inputs, arguments in order, without recursion.
class Traversal {
 public:
  Traversal(const Model& model, const CallNodes& graph)
      : nodes_(graph.nodes),
        state_(nodes_.size(), State::kNew),
        index_(graph.first_call.size(), -1) {
    for (const int output : flattened_outputs(model)) {
      visit(graph.of_call[output]);
    }
  }
  const std::vector<int>& finished() const { return finished_; }  // nodes, inputs first
  const std::vector<int>& index() const { return index_; }  // operation -> when it was first met

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };

  void open(int node, std::vector<std::pair<int, size_t>>& stack) {
    int& index = index_[nodes_[node].operation];
    index = index < 0 ? met_++ : index;
    state_[node] = State::kOpen;
    stack.emplace_back(node, 0);
  }

  void visit(int output) {
    std::vector<std::pair<int, size_t>> stack;  // node, next argument
    if (state_[output] == State::kNew) {
      open(output, stack);
    }
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      const std::vector<CallStep>& takes = nodes_[node].takes;
      if (next < takes.size()) {
        const int taken = takes[next++].node;
        if (state_[taken] == State::kNew) {
          open(taken, stack);
        }
        continue;
      }
      state_[node] = State::kDone;
      finished_.push_back(node);
      stack.pop_back();
    }
  }

  const std::vector<CallNode>& nodes_;
  std::vector<State> state_;
  std::vector<int> index_;
  std::vector<int> finished_;
  int met_ = 0;
};

}  // namespace

bool has_named_outputs(const Model& model) {
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    if (model.output_names()[i] != model.calls()[model.outputs()[i]].name) {
      return true;
    }
  }
  return false;
}

std::vector<int> keras_layer_order(const Model& model) {
  const CallNodes graph = call_nodes(model);
  const Traversal traversal(model, graph);
  std::vector<int> node_depth(graph.nodes.size(), 0);
  std::vector<int> depth(graph.first_call.size(), 0);  // of operations
  const std::vector<int>& finished = traversal.finished();
  for (auto it = finished.rbegin(); it != finished.rend(); ++it) {
    const CallNode& node = graph.nodes[*it];
    int& of_operation = depth[node.operation];
    of_operation = std::max(of_operation, node_depth[*it]);
    node_depth[*it] = of_operation;
    for (const CallStep& step : node.takes) {
      node_depth[step.node] = std::max(node_depth[step.node], of_operation + step.operations);
    }
  }
  std::vector<int> order(graph.first_call.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return depth[a] != depth[b] ? depth[a] > depth[b] : traversal.index()[a] < traversal.index()[b];
  });
  std::vector<int> calls;
  for (const int operation : order) {
    if (graph.first_call[operation] != kNone) {
      calls.push_back(graph.first_call[operation]);
    }
  }
  return calls;
}

}  // namespace meshtrain
