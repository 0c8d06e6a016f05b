// Adam, AdamW, Adamax, Nadam, ScheduleFreeAdamW.
#include "nn/arguments.h"
#include "nn/optimizer_rules.h"

namespace meshtrain {
namespace {

using Values = std::vector<ValueId>;

std::vector<SlotSpec> adam_slots(const ConfigObject& config, const WeightKind& weight) {
  std::vector<SlotSpec> slots = moment_slots(config, weight);
  if (config.boolean("amsgrad")) {
    slots.push_back({"velocity_hat"});
  }
  return slots;
}

Values adam(RuleStep& step, const RuleWeight& w) {
  const bool amsgrad = step.config.boolean("amsgrad");
  return adam_update(step, w, step.number("beta_1"), step.number("beta_2"), 1, amsgrad);
}

std::vector<SlotSpec> adamax_slots(const ConfigObject&, const WeightKind&) {
  return {{"momentum"}, {"norm"}};
}

Values adamax(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const ValueId m = step.towards(w.slots[0], w.grad, 1 - step.number("beta_1"));
  const ValueId u = b.maximum(b.mul(w.slots[1], step.number("beta_2")), b.unary("abs", w.grad));
  const ValueId rate = step.shared("adamax rate", dtype, [&] {
    return b.div(step.rate(dtype), step.rest(step.number("beta_1"), dtype));
  });
  const ValueId change = b.div(b.mul(m, rate), b.add(u, step.number("epsilon")));
  return {b.sub(decayed(step, w), change), m, u};
}

// Dozat 2016: u_t = beta_1 (1 - 0.96^t / 2) takes beta_1's place, their product that of beta_1^t.
ValueId nadam_momentum(RuleStep& step, DType dtype, double ahead) {
  Builder& b = step.b;
  return step.shared(ahead == 0 ? "nadam u" : "nadam next u", dtype, [&] {
    const ValueId half = b.mul(step.power(0.96, dtype, ahead), 0.5);
    return b.mul(b.sub(b.constant(1, dtype), half), step.number("beta_1"));
  });
}

std::vector<OptimizerScalar> nadam_scalars(const ConfigObject&, DType dtype) {
  return {{"u_product", dtype, 1}};
}

void begin_nadam(RuleStep& step) {
  Builder& b = step.b;
  const DType dtype = b.dtype(step.scalars[0]);
  step.scalars[0] = b.mul(step.scalars[0], nadam_momentum(step, dtype, 0));
}

Values nadam(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const ValueId one = b.constant(1, dtype);
  const ValueId m = step.towards(w.slots[0], w.grad, 1 - step.number("beta_1"));
  const ValueId v = step.towards(w.slots[1], b.square(w.grad), 1 - step.number("beta_2"));
  const ValueId of_m = step.shared("nadam of m", dtype, [&] {
    const ValueId next = nadam_momentum(step, dtype, 1);
    const ValueId product = b.mul(b.cast(step.scalars[0], dtype), next);
    return b.div(b.mul(step.rate(dtype), next), b.sub(one, product));
  });
  const ValueId of_grad = step.shared("nadam of grad", dtype, [&] {
    const ValueId left = b.sub(one, nadam_momentum(step, dtype, 0));
    const ValueId product = b.cast(step.scalars[0], dtype);
    return b.div(b.mul(step.rate(dtype), left), b.sub(one, product));
  });
  const ValueId mean = b.add(b.mul(m, of_m), b.mul(w.grad, of_grad));
  const ValueId root = step.unbiased_root(v, step.number("beta_2"));
  return {b.sub(decayed(step, w), b.div(mean, root)), m, v};
}

std::vector<SlotSpec> schedule_free_slots(const ConfigObject&, const WeightKind&) {
  return {{.name = "momentum", .copy_weight = true}, {"velocity"}};
}

// Defazio et al. 2024, The road less scheduled. The weight is y, the slot "momentum" z, and their
// mean x = (y - (1 - beta_1) z) / beta_1 follows from them.
Values schedule_free(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const double beta_1 = step.number("beta_1"), beta_2 = step.number("beta_2");
  const ValueId rate = step.shared("warm rate", dtype, [&] {
    const double warmup = step.number("warmup_steps");
    return warmup == 0 ? step.rate(dtype)
                       : b.mul(step.rate(dtype), b.minimum(b.div(step.t(dtype), warmup), 1.0));
  });
  const ValueId weight =
      step.shared("1 / t", dtype, [&] { return b.unary("reciprocal", step.t(dtype)); });
  const ValueId other =
      step.shared("1 - 1 / t", dtype, [&] { return b.sub(b.constant(1, dtype), weight); });
  const ValueId v = step.towards(w.slots[1], b.square(w.grad), 1 - beta_2);
  const ValueId root = step.unbiased_root(v, beta_2);
  const ValueId z = b.sub(w.slots[0], b.div(b.mul(w.grad, rate), root));
  const ValueId old_x = b.div(b.sub(decayed(step, w), b.mul(w.slots[0], 1 - beta_1)), beta_1);
  const ValueId x = b.add(b.mul(old_x, other), b.mul(z, weight));
  return {b.add(b.mul(z, 1 - beta_1), b.mul(x, beta_1)), z, v};
}

}  // namespace

Values adam_update(RuleStep& step, const RuleWeight& w, double beta_1, double beta_2,
                   double rate_factor, bool amsgrad) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const ValueId alpha = step.shared("adam alpha", dtype, [&] {
    const ValueId root = b.sqrt(step.rest(beta_2, dtype));
    return b.div(b.mul(b.mul(step.rate(dtype), rate_factor), root), step.rest(beta_1, dtype));
  });
  return fused_update(step, w, "adam",
                      {{"beta_1", beta_1},
                       {"beta_2", beta_2},
                       {"epsilon", step.number("epsilon")},
                       {"amsgrad", int64_t{amsgrad}}},
                      alpha);
}

std::vector<OptimizerDef> adam_rules() {
  return {{"Adam", adam_slots, adam},
          {"AdamW", adam_slots, adam},
          {"Adamax", adamax_slots, adamax},
          {"Nadam", moment_slots, nadam, nullptr, nadam_scalars, begin_nadam},
          {"ScheduleFreeAdamW", schedule_free_slots, schedule_free}};
}

}  // namespace meshtrain
