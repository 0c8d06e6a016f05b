// One apply of one rule, in Keras' order: accumulate, clip, decay, rule, average, overwrite,
// constraint. Source: Keras 3 optimizers/base_optimizer.py.
#include <algorithm>

#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/graph_parts.h"
#include "nn/optimizer_rules.h"
#include "nn/regularizers.h"

namespace meshtrain {
namespace {

// Builds the parts of one apply; lives for the call.
class Apply {
 public:
  Apply(Builder& b, const ConfigObject& config, int64_t accumulation, ValueId raw_iteration,
        ValueId rate)
      : b_(b),
        config_(config),
        rule_(find_rule(config)),
        step_(b, config, rule_iteration(b, accumulation, raw_iteration), rate) {
    const ConfigValue& patterns = value_or_null(config, "exclude_from_weight_decay");
    if (patterns.is_list()) {
      for (const ConfigValue& pattern : patterns.list()) {
        excluded_.emplace_back(pattern.string(), pattern.loc);
      }
    }
  }

  // The rule's scalars: their values before the update, then their new ones.
  std::vector<ValueId> begin(std::vector<ValueId> scalars) {
    step_.scalars = std::move(scalars);
    if (rule_.begin != nullptr) {
      rule_.begin(step_);
    }
    return step_.scalars;
  }

  // Gradients clipped by the one clip that is set; kNone is returned as it is.
  void clip(std::vector<ValueId>& grads) {
    if (number_or(config_, "clipnorm", 0) > 0) {
      for (ValueId& grad : grads) {
        grad = grad == kNone ? kNone : clip_by_norm(grad, config_.number("clipnorm"));
      }
    } else if (number_or(config_, "global_clipnorm", 0) > 0) {
      clip_by_global_norm(grads, config_.number("global_clipnorm"));
    } else if (number_or(config_, "clipvalue", 0) > 0) {
      const double limit = config_.number("clipvalue");
      for (ValueId& grad : grads) {
        grad = grad == kNone ? kNone : b_.clamp(grad, -limit, limit);
      }
    }
  }

  // Decay and rule: the new parameter, then the rule's new slots.
  std::vector<ValueId> update(const std::string& path, ValueId param, ValueId grad,
                              std::span<const ValueId> slots) {
    const double decay = weight_decay({path, b_.shape(param).size()});
    return rule_.update(step_,
                        {path, param, grad, slots, step_.decay_rate(decay, b_.dtype(param))});
  }

  // m * average + (1 - m) * param, where m is 0 at the first iteration.
  ValueId average(ValueId average, ValueId param) {
    const DType dtype = b_.dtype(param);
    const ValueId old = step_.shared("ema of old", dtype, [&] {
      const ValueId is_first = b_.binary("eq", step_.iteration(), b_.constant(0, DType::kInt64));
      const double momentum = config_.number("ema_momentum");
      return b_.select(is_first, b_.constant(0, dtype), b_.constant(momentum, dtype));
    });
    const ValueId fresh =
        step_.shared("ema of new", dtype, [&] { return b_.sub(b_.constant(1, dtype), old); });
    return b_.add(b_.mul(average, old), b_.mul(param, fresh));
  }

  // The average instead of the parameter every ema_overwrite_frequency iterations.
  ValueId overwrite(ValueId param, ValueId average) {
    if (!config_.has("ema_overwrite_frequency")) {
      return param;
    }
    const ValueId now = step_.shared("overwrite", DType::kBool, [&] {
      const ValueId frequency = b_.constant(
          static_cast<double>(config_.integer("ema_overwrite_frequency")), DType::kInt64);
      const ValueId next = b_.add(step_.iteration(), b_.constant(1, DType::kInt64));
      return b_.binary("eq", next, b_.mul(b_.div(next, frequency), frequency));
    });
    return b_.select(now, average, param);
  }

 private:
  // Iterations as the rules count them: floor(raw / accumulation steps).
  static ValueId rule_iteration(Builder& b, int64_t accumulation, ValueId raw) {
    return accumulation == 1
               ? raw
               : b.div(raw, b.constant(static_cast<double>(accumulation), DType::kInt64));
  }

  double weight_decay(const WeightKind& weight) const {
    const size_t slash = weight.path.rfind('/');
    const std::string_view name =
        slash == std::string_view::npos ? weight.path : weight.path.substr(slash + 1);
    if (std::any_of(excluded_.begin(), excluded_.end(),
                    [&](const Pattern& pattern) { return pattern.search(name); })) {
      return 0;
    }
    const char* argument =
        rule_.decay_argument == nullptr ? "weight_decay" : rule_.decay_argument(config_, weight);
    return number_or(config_, argument, 0);
  }

  ValueId clip_by_norm(ValueId grad, double limit) {
    // sqrt(0) is 0 here and nothing is differentiated, so no guard is needed.
    const ValueId norm = b_.sqrt(b_.reduce_sum_all(b_.square(grad)));
    return b_.div(b_.mul(grad, limit), b_.maximum(norm, limit));
  }

  void clip_by_global_norm(std::vector<ValueId>& grads, double limit) {
    std::vector<ValueId> squares;
    for (const ValueId grad : grads) {
      if (grad != kNone) {
        const ValueId square = b_.reduce_sum_all(b_.square(grad));
        squares.push_back(squares.empty() ? square : b_.cast(square, b_.dtype(squares[0])));
      }
    }
    if (squares.empty()) {
      return;
    }
    const ValueId norm = b_.sqrt(sum_of_scalars(b_, squares));
    const ValueId finite = b_.mul(b_.minimum(b_.unary("reciprocal", norm), 1 / limit), limit);
    // norm - norm is 0 for a finite norm and NaN otherwise, which then reaches every weight.
    const ValueId scale = b_.add(finite, b_.sub(norm, norm));
    for (ValueId& grad : grads) {
      if (grad != kNone) {
        grad = b_.mul(grad, step_.shared("clip", b_.dtype(grad),
                                         [&] { return b_.cast(scale, b_.dtype(grad)); }));
      }
    }
  }

  Builder& b_;
  const ConfigObject& config_;
  const OptimizerDef& rule_;
  RuleStep step_;
  std::vector<Pattern> excluded_;  // names of weights that do not decay
};

}  // namespace

int64_t accumulation_steps(const ConfigObject& config) {
  return std::max<int64_t>(1, integer_or(config, "gradient_accumulation_steps", 1));
}

Optimizer::Result apply_rule(Builder& builder, const ConfigObject& config,
                             const std::vector<Optimizer::WeightUpdate>& weights,
                             Optimizer::State state, ValueId rate, bool apply_now) {
  const int64_t steps = accumulation_steps(config);
  const bool uses_ema = config.boolean("use_ema");
  const size_t accumulator = uses_ema ? 1 : 0;  // index of its slot, when steps > 1
  const size_t first_rule_slot = accumulator + (steps > 1 ? 1 : 0);
  Apply apply(builder, config, steps, state.iteration, rate);
  Optimizer::Result result;
  std::vector<ValueId> grads;
  for (const Optimizer::WeightUpdate& weight : weights) {
    result.params.push_back(weight.param);
    result.slots.push_back(weight.slots);
    grads.push_back(weight.grad);
    if (steps > 1 && weight.grad != kNone) {
      const ValueId sum = builder.add(grads.back(), weight.slots[accumulator]);
      grads.back() = apply_now ? builder.div(sum, static_cast<double>(steps)) : sum;
      result.slots.back()[accumulator] =
          apply_now ? builder.constant(0, builder.dtype(sum), builder.shape(sum)) : sum;
    }
  }
  result.state = {builder.add(state.iteration, builder.constant(1, DType::kInt64)), state.scalars};
  if (apply_now) {
    result.state.scalars = apply.begin(std::move(state.scalars));
    apply.clip(grads);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<ValueId>& slots = result.slots[i];
    if (apply_now && grads[i] != kNone) {
      const std::vector<ValueId> rule_slots(slots.begin() + first_rule_slot, slots.end());
      const std::vector<ValueId> updated =
          apply.update(weights[i].path, weights[i].param, grads[i], rule_slots);
      MESHTRAIN_CHECK(updated.size() == rule_slots.size() + 1, "{} has {} slots, for {}",
                      weights[i].path, rule_slots.size(), updated.size() - 1);
      result.params[i] = updated[0];
      std::copy(updated.begin() + 1, updated.end(), slots.begin() + first_rule_slot);
    }
    if (uses_ema) {
      slots[0] = apply.average(slots[0], result.params[i]);
      result.params[i] = apply.overwrite(result.params[i], slots[0]);
    }
    if (weights[i].constraint != nullptr && grads[i] != kNone) {
      result.params[i] = add_constraint(builder, *weights[i].constraint, result.params[i]);
    }
  }
  return result;
}

}  // namespace meshtrain
