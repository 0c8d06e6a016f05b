// optimizer_update: one step of one variable, elementwise, in the optimizer state's layout.
//
// Attribute `kind` (string) and those in braces (doubles unless marked); operands in brackets exist
// when the attribute beside them says so. param, grad and slots have one shape and dtype; scalars
// (rate, alpha, decay_rate) are of that dtype, shape (). Results: the new param, then the new slots
// in the order of the operands. Formulas: Keras 3 optimizers; the right-hand sides see new slots.
//
//   kind      operands                                             attributes
//   sgd       param, grad, rate                                    -
//   momentum  param, grad, v, rate                                 {momentum, nesterov (int 0/1)}
//   rmsprop   param, grad, v, [m: momentum > 0], [a: centered],    {rho, epsilon, momentum,
//             rate                                                  centered (int 0/1)}
//   adam      param, grad, m, v, [vhat: amsgrad], alpha            {beta_1, beta_2, epsilon,
//                                                                   amsgrad (int 0/1)}
//
//   sgd       param -= rate * grad
//   momentum  v = momentum * v - rate * grad
//             param += nesterov ? momentum * v - rate * grad : v
//   rmsprop   v = rho * v + (1 - rho) * grad^2
//             centered: a = rho * a + (1 - rho) * grad; denominator = v - a^2 + epsilon,
//             otherwise v + epsilon;  increment = rate * grad / sqrt(denominator)
//             momentum > 0: m = momentum * m + increment; param -= m, otherwise param -= increment
//   adam      m += (grad - m) * (1 - beta_1);  v += (grad^2 - v) * (1 - beta_2)
//             amsgrad: vhat = max(vhat, v);  param -= alpha * m / (sqrt(vhat or v) + epsilon)
//             alpha = rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) is computed in the graph
//
// Every kind: with the attribute has_decay (int 1) one more scalar operand follows at the end,
// decay_rate = weight_decay * learning rate, and first of all param -= param * decay_rate.
#include "ir/ops/optimizer.h"

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {

OptimizerOperands optimizer_operands(const Node& node) {
  const std::string& kind = node.attr_string("kind");
  OptimizerOperands operands;
  if (kind == "sgd") {
    operands.num_slots = 0;
  } else if (kind == "momentum") {
    node.attr_double("momentum");
    node.attr_int("nesterov");
    operands.num_slots = 1;
  } else if (kind == "rmsprop") {
    node.attr_double("rho");
    node.attr_double("epsilon");
    operands.num_slots =
        1 + (node.attr_double("momentum") > 0 ? 1 : 0) + (node.attr_int("centered") != 0 ? 1 : 0);
  } else if (kind == "adam") {
    node.attr_double("beta_1");
    node.attr_double("beta_2");
    node.attr_double("epsilon");
    operands.num_slots = 2 + (node.attr_int("amsgrad") != 0 ? 1 : 0);
  } else {
    op_check_failed(node, "there is no optimizer kind `" + kind + "`");
  }
  operands.has_decay = node.has_attr("has_decay") && node.attr_int("has_decay") != 0;
  return operands;
}

namespace {

std::vector<ValueType> infer_update(const Node& node, std::span<const ValueType> operands) {
  const OptimizerOperands expected = optimizer_operands(node);
  check_num_operands(node, operands, expected.size());
  const ValueType& param = operands[0];
  MESHTRAIN_OP_CHECK(node, is_floating(param.dtype), "does not take {}", dtype_name(param.dtype));
  const size_t num_tensors = 2 + static_cast<size_t>(expected.num_slots);
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueType wanted = i < num_tensors ? param : ValueType{{}, param.dtype};
    MESHTRAIN_OP_CHECK(node, operands[i] == wanted, "operand {} is {} {}, for {} {}", i,
                       dtype_name(operands[i].dtype), shape_string(operands[i].shape),
                       dtype_name(wanted.dtype), shape_string(wanted.shape));
  }
  return std::vector<ValueType>(1 + static_cast<size_t>(expected.num_slots), param);
}

}  // namespace

std::vector<OpDef> optimizer_ops() {
  OpDef op;
  op.name = "optimizer_update";
  op.in_place = op.is_unique = true;
  op.infer = infer_update;
  op.rule = broadcast_rule;
  op.flops = [](const Node& node, std::span<const Shape>, std::span<const Shape> results) {
    return static_cast<double>(num_elements(results[0])) * (node.inputs.size() * 3.0);
  };
  return {op};
}

}  // namespace meshtrain
