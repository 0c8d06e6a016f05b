// Adagrad, Adadelta, Ftrl.
#include "nn/optimizer_rules.h"

namespace meshtrain {
namespace {

using Values = std::vector<ValueId>;

std::vector<SlotSpec> adagrad_slots(const ConfigObject& config, const WeightKind&) {
  return {{"accumulator", config.number("initial_accumulator_value")}};
}

Values adagrad(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const ValueId sum = b.add(w.slots[0], b.square(w.grad));
  const ValueId change =
      b.div(b.mul(w.grad, step.rate(b.dtype(w.param))), b.sqrt(b.add(sum, step.number("epsilon"))));
  return {b.sub(decayed(step, w), change), sum};
}

std::vector<SlotSpec> adadelta_slots(const ConfigObject&, const WeightKind&) {
  return {{"accumulated_grad"}, {"accumulated_delta_var"}};
}

// The root mean square of earlier changes over that of the gradients, times the gradient.
Values adadelta(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const double rho = step.number("rho"), epsilon = step.number("epsilon");
  const auto running = [&](ValueId mean, ValueId x) {
    return b.add(b.mul(mean, rho), b.mul(b.square(x), 1 - rho));
  };
  const ValueId grads = running(w.slots[0], w.grad);
  const ValueId change =
      b.div(b.mul(b.sqrt(b.add(w.slots[1], epsilon)), w.grad), b.sqrt(b.add(grads, epsilon)));
  const ValueId param = b.sub(decayed(step, w), b.mul(change, step.rate(b.dtype(w.param))));
  return {param, grads, running(w.slots[1], change)};
}

std::vector<SlotSpec> ftrl_slots(const ConfigObject& config, const WeightKind&) {
  return {{"accumulator", config.number("initial_accumulator_value")}, {"linear"}};
}

// McMahan et al. 2013, Ad click prediction: algorithm 1, with the shrinkage of Keras.
Values ftrl(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const ValueId rate = step.rate(dtype);
  const double power = -step.number("learning_rate_power");
  const double l1 = step.number("l1_regularization_strength");
  const auto to_power = [&](ValueId x) {
    return power == 0.5 ? b.sqrt(x) : b.binary("pow", x, b.constant(power, dtype));
  };
  // 2 (l2 + beta / (2 rate))
  const ValueId l2 = step.shared("ftrl l2", dtype, [&] {
    return b.add(b.div(b.constant(step.number("beta"), dtype), rate),
                 2 * step.number("l2_regularization_strength"));
  });
  const ValueId param = decayed(step, w);
  const ValueId grad =
      b.add(w.grad, b.mul(param, 2 * step.number("l2_shrinkage_regularization_strength")));
  const ValueId sum = b.add(w.slots[0], b.square(w.grad));
  const ValueId root = to_power(sum);
  const ValueId growth = b.div(b.sub(root, to_power(w.slots[0])), rate);
  const ValueId linear = b.add(w.slots[1], b.sub(grad, b.mul(growth, param)));
  const ValueId quadratic = b.add(b.div(root, rate), l2);
  return {b.div(b.sub(b.clamp(linear, -l1, l1), linear), quadratic), sum, linear};
}

}  // namespace

std::vector<OptimizerDef> adagrad_rules() {
  return {{"Adagrad", adagrad_slots, adagrad},
          {"Adadelta", adadelta_slots, adadelta},
          {"Ftrl", ftrl_slots, ftrl}};
}

}  // namespace meshtrain
