// SGD, RMSprop, Lion.
#include "nn/arguments.h"
#include "nn/optimizer_rules.h"

namespace meshtrain {
namespace {

using Values = std::vector<ValueId>;

std::vector<SlotSpec> sgd_slots(const ConfigObject& config, const WeightKind&) {
  if (config.number("momentum") == 0) {
    return {};
  }
  return {{"momentum"}};
}

Values sgd(RuleStep& step, const RuleWeight& w) {
  const ValueId rate = step.rate(step.b.dtype(w.param));
  if (w.slots.empty()) {
    return fused_update(step, w, "sgd", {}, rate);
  }
  return fused_update(step, w, "momentum",
                      {{"momentum", step.number("momentum")},
                       {"nesterov", int64_t{step.config.boolean("nesterov")}}},
                      rate);
}

std::vector<SlotSpec> rmsprop_slots(const ConfigObject& config, const WeightKind&) {
  std::vector<SlotSpec> slots = {{"velocity"}};
  if (config.number("momentum") > 0) {
    slots.push_back({"momentum"});
  }
  if (config.boolean("centered")) {
    slots.push_back({"average_gradient"});
  }
  return slots;
}

Values rmsprop(RuleStep& step, const RuleWeight& w) {
  return fused_update(step, w, "rmsprop",
                      {{"rho", step.number("rho")},
                       {"epsilon", step.number("epsilon")},
                       {"momentum", step.number("momentum")},
                       {"centered", int64_t{step.config.boolean("centered")}}},
                      step.rate(step.b.dtype(w.param)));
}

std::vector<SlotSpec> lion_slots(const ConfigObject&, const WeightKind&) {
  return {{"momentum"}};
}

// Only the sign of the interpolated momentum counts. Both interpolations share a difference, which
// makes them one pass.
Values lion(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const ValueId direction =
      b.unary("sign", step.towards(w.slots[0], w.grad, 1 - step.number("beta_1")));
  const ValueId momentum = step.towards(w.slots[0], w.grad, 1 - step.number("beta_2"));
  return {b.sub(decayed(step, w), b.mul(direction, step.rate(b.dtype(w.param)))), momentum};
}

}  // namespace

std::vector<OptimizerDef> gradient_descent_rules() {
  return {{"SGD", sgd_slots, sgd}, {"RMSprop", rmsprop_slots, rmsprop}, {"Lion", lion_slots, lion}};
}

}  // namespace meshtrain
