#include "nn/optimizer_rules.h"

#include "config/precision.h"
#include "nn/arguments.h"

namespace meshtrain {

RuleStep::RuleStep(Builder& builder, const ConfigObject& config, ValueId iteration, ValueId rate)
    : b(builder), config(config), iteration_(iteration), rate_(rate) {}

ValueId RuleStep::rate(DType dtype) {
  return shared("rate", dtype, [&] { return b.cast(rate_, dtype); });
}

ValueId RuleStep::t(DType dtype, double ahead) {
  return shared(fmt::format("t + {}", ahead), dtype,
                [&] { return b.add(b.cast(iteration_, dtype), 1 + ahead); });
}

// In 16 bits 0.999 would be 1, and t would stand still.
ValueId RuleStep::power(double base, DType dtype, double ahead) {
  return shared(fmt::format("{}^(t + {})", base, ahead), dtype, [&] {
    const DType wide = at_least_float32(dtype);
    return b.cast(b.binary("pow", b.constant(base, wide), t(wide, ahead)), dtype);
  });
}

ValueId RuleStep::rest(double base, DType dtype) {
  return shared(fmt::format("1 - {}^t", base), dtype, [&] {
    const DType wide = at_least_float32(dtype);
    return b.cast(b.sub(b.constant(1, wide), power(base, wide)), dtype);
  });
}

ValueId RuleStep::decay_rate(double weight_decay, DType dtype) {
  return weight_decay == 0 ? kNone : shared(fmt::format("decay {}", weight_decay), dtype, [&] {
    return b.mul(rate(dtype), weight_decay);
  });
}

ValueId RuleStep::towards(ValueId old, ValueId fresh, double rate_of_change) {
  return b.add(b.mul(b.sub(fresh, old), rate_of_change), old);
}

ValueId RuleStep::unbiased_root(ValueId velocity, double beta_2) {
  return b.add(b.sqrt(b.div(velocity, rest(beta_2, b.dtype(velocity)))), number("epsilon"));
}

ValueId decayed(RuleStep& step, const RuleWeight& weight) {
  return weight.decay_rate == kNone
             ? weight.param
             : step.b.sub(weight.param, step.b.mul(weight.param, weight.decay_rate));
}

std::vector<SlotSpec> moment_slots(const ConfigObject&, const WeightKind&) {
  return {{"momentum"}, {"velocity"}};
}

std::vector<ValueId> fused_update(RuleStep& step, const RuleWeight& weight, std::string_view kind,
                                  Attrs attrs, ValueId rate) {
  std::vector<ValueId> inputs = {weight.param, weight.grad};
  inputs.insert(inputs.end(), weight.slots.begin(), weight.slots.end());
  inputs.push_back(rate);
  if (weight.decay_rate != kNone) {
    attrs.emplace("has_decay", int64_t{1});
    inputs.push_back(weight.decay_rate);
  }
  return step.b.optimizer_update(kind, std::move(inputs), std::move(attrs));
}

const OptimizerDef& find_rule(const ConfigObject& config) {
  static const std::map<std::string_view, OptimizerDef> kRules = [] {
    std::map<std::string_view, OptimizerDef> rules;
    for (const auto& family : {gradient_descent_rules, adam_rules, adagrad_rules, matrix_rules}) {
      for (const OptimizerDef& rule : family()) {
        MESHTRAIN_CHECK(find_class(Category::kOptimizer, rule.class_name) != nullptr,
                        "{} is not declared", rule.class_name);
        rules.emplace(rule.class_name, rule);
      }
    }
    return rules;
  }();
  const auto found = kRules.find(config.class_name);
  MESHTRAIN_CHECK(found != kRules.end(), "no optimizer {}", config.class_name);
  return found->second;
}

}  // namespace meshtrain
