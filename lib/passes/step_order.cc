#include "passes/step_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ir/op.h"
#include "ir/ops/attention.h"
#include "passes/step_dims.h"

namespace meshtrain {
namespace {

class StepOrder {
 public:
  StepOrder(const Graph& graph, std::string_view positions)
      : graph_(graph), positions_(positions), dims_(graph.values.size(), kNone) {}

  void check() {
    for (const Node& node : graph_.nodes) {
      add(node);
    }
    for (const Output& output : graph_.outputs) {
      if (dim_of(output.value) != 1)
        refuse_node(graph_.producer(output.value), "gives no output for each step");
    }
  }

 private:
  int dim_of(ValueId value) const { return dims_[static_cast<size_t>(value)]; }
  void set(ValueId value, int dim) { dims_[static_cast<size_t>(value)] = dim; }

  void add(const Node& node) {
    if (node.op->kind == OpKind::kInput)
      return add_input(node);
    if (node.path.find(positions_) != std::string::npos)
      return add_position(node);
    if (std::none_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return dim_of(input) != kNone; }))
      return;
    if (node.op->name == "attention")
      return add_attention(node);
    add_by_rule(node);
  }

  void add_input(const Node& node) {
    const Shape& shape = graph_.shape(node.outputs[0]);
    steps_ = steps_ == 0 && shape.size() > 1 ? shape[1] : steps_;
    if (shape.size() < 2 || shape[1] != steps_)
      throw StepObstacle{fmt::format("the input {} is no sequence of {} steps",
                                     shape_string(without_first(shape)), steps_)};
    set(node.outputs[0], 1);
  }

  void add_position(const Node& node) {
    const Shape& shape = graph_.shape(node.outputs[0]);
    set(node.outputs[0], shape == Shape{steps_} ? 0 : shape == Shape{1, steps_} ? 1 : kNone);
  }

  void add_attention(const Node& node) {
    const AttentionOperands at(node.attr_string("operands"), kAttentionInputs);
    const auto has_steps = [&](AttentionOperand operand) {
      return at[operand] >= 0 && dim_of(node.inputs[static_cast<size_t>(at[operand])]) == 1;
    };
    for (size_t i = 0; i < kAttentionInputs; ++i) {
      if (dim_of(node.inputs[i]) != 1)
        refuse_node(node, kJoinsSteps);
    }
    const bool has_order = node.attr_int("causal") != 0 || node.attr_int("window") > 0;
    if (has_order && !(has_steps(AttentionOperand::kQueryPositions) &&
                       has_steps(AttentionOperand::kKeyPositions)))
      refuse_node(node, "has an order without positions");
    if (at[AttentionOperand::kMask] >= 0)
      refuse_node(node, "has a mask of its own");
    for (const AttentionOperand operand :
         {AttentionOperand::kQueryMask, AttentionOperand::kKeyMask,
          AttentionOperand::kQuerySegments, AttentionOperand::kKeySegments}) {
      if (at[operand] >= 0 && !has_steps(operand))
        refuse_node(node, "has a mask of steps by their places");
    }
    set(node.outputs[0], 1);
    set(node.outputs[1], 2);
  }

  void add_by_rule(const Node& node) {
    const ShardingRule rule = sharding_rule(graph_, node);
    std::vector<int> dims;
    for (const ValueId input : node.inputs)
      dims.push_back(dim_of(input));
    const int factor = step_factor(node, rule, dims);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int dim = step_dim(node, rule.operands[i], factor);
      const bool is_one =
          dim == kNone || graph_.shape(node.inputs[i])[static_cast<size_t>(dim)] == 1;
      if (dim != dims[i] && !(dims[i] == kNone && is_one))
        refuse_node(node,
                    dims[i] == kNone ? "reads a table of steps by their places" : kJoinsSteps);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int dim = step_dim(node, rule.results[i], factor);
      if (dim == kNone)
        refuse_node(node, kJoinsSteps);
      set(node.outputs[i], dim);
    }
  }

  const Graph& graph_;
  std::string_view positions_;
  std::vector<int> dims_;  // of steps, of each value; kNone: it has none
  int64_t steps_ = 0;
};

}  // namespace

std::string step_order_obstacle(const Graph& graph, std::string_view positions) {
  try {
    StepOrder(graph, positions).check();
  } catch (const StepObstacle& obstacle) {
    return obstacle.text;
  }
  return "";
}

}  // namespace meshtrain
