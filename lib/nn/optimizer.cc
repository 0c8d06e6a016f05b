// SGD, RMSprop, Adam and AdamW. Source: Keras 3 optimizers/base_optimizer.py and one file each. The
// order of one apply: accumulate, clip, decay, rule, average, overwrite (keras-semantics 7.1).
//
// `loss_scale_factor` needs no op: multiplying the loss and dividing the gradients by one factor
// cancels, and only half precision gains from it.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/schedules.h"

namespace meshtrain {
namespace {

enum class Rule { kSgd, kRmsprop, kAdam };

Rule rule_of(const ConfigObject& config) {
  const std::string key = name_key(config.class_name);
  if (key == "sgd") {
    return Rule::kSgd;
  }
  if (key == "rmsprop") {
    return Rule::kRmsprop;
  }
  if (key == "adam" || key == "adamw") {
    return Rule::kAdam;
  }
  throw ConfigError("E122", config.loc,
                    fmt::format("there is no optimizer `{}`", config.class_name));
}

// Keras' default `name` of each class.
std::string default_name(const ConfigObject& config) {
  return name_key(config.class_name) == "sgd" ? "SGD" : name_key(config.class_name);
}

// Slots that the rule itself keeps, in Keras' order.
std::vector<SlotSpec> rule_slots(const ConfigObject& config) {
  switch (rule_of(config)) {
    case Rule::kSgd:
      if (number_or(&config, "momentum", 0) == 0) {
        return {};
      }
      return {{"momentum"}};
    case Rule::kRmsprop: {
      std::vector<SlotSpec> slots = {{"velocity"}};
      if (number_or(&config, "momentum", 0) > 0) {
        slots.push_back({"momentum"});
      }
      if (boolean_or(&config, "centered", false)) {
        slots.push_back({"average_gradient"});
      }
      return slots;
    }
    case Rule::kAdam: {
      std::vector<SlotSpec> slots = {{"momentum"}, {"velocity"}};
      if (boolean_or(&config, "amsgrad", false)) {
        slots.push_back({"velocity_hat"});
      }
      return slots;
    }
  }
  throw InternalError("unreachable");
}

double weight_decay(const ConfigObject& config) {
  return number_or(&config, "weight_decay", 0);
}

int64_t accumulation(const ConfigObject& config) {
  return std::max<int64_t>(1, integer_or(&config, "gradient_accumulation_steps", 1));
}

// The scalars that every weight of one dtype shares.
struct Scalars {
  ValueId rate = kNone;
  ValueId decay_rate = kNone;    // weight_decay * rate
  ValueId alpha = kNone;         // Adam: rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
  ValueId ema_momentum = kNone;  // 0 at the first iteration
  ValueId one_minus_ema = kNone;
};

// Builds one apply; lives for the call.
class Apply {
 public:
  Apply(Builder& b, const ConfigObject& config, ValueId iteration, ValueId rate)
      : b_(b), config_(config), rate_(rate), iteration_(rule_iteration(b, config, iteration)) {}

  // Gradients clipped by the one clip that is set; kNone stays.
  void clip(std::vector<ValueId>& grads) {
    if (config_.has("clipnorm") && config_.number("clipnorm") > 0) {
      for (ValueId& grad : grads) {
        grad = grad == kNone ? kNone : clip_by_norm(grad, config_.number("clipnorm"));
      }
    } else if (config_.has("global_clipnorm") && config_.number("global_clipnorm") > 0) {
      clip_by_global_norm(grads, config_.number("global_clipnorm"));
    } else if (config_.has("clipvalue") && config_.number("clipvalue") > 0) {
      const double limit = config_.number("clipvalue");
      for (ValueId& grad : grads) {
        grad = grad == kNone ? kNone : b_.clamp(grad, -limit, limit);
      }
    }
  }

  // Decay and rule: the new parameter, then the rule's new slots.
  std::vector<ValueId> update(ValueId param, ValueId grad, std::span<const ValueId> slots) {
    const Scalars& scalars = scalars_of(b_.dtype(param));
    std::vector<ValueId> inputs = {param, grad};
    inputs.insert(inputs.end(), slots.begin(), slots.end());
    Attrs attrs;
    std::string kind;
    switch (rule_of(config_)) {
      case Rule::kSgd:
        kind = slots.empty() ? "sgd" : "momentum";
        if (!slots.empty()) {
          attrs = {{"momentum", number_or(&config_, "momentum", 0)},
                   {"nesterov", int64_t{boolean_or(&config_, "nesterov", false)}}};
        }
        inputs.push_back(scalars.rate);
        break;
      case Rule::kRmsprop:
        kind = "rmsprop";
        attrs = {{"rho", number_or(&config_, "rho", 0.9)},
                 {"epsilon", number_or(&config_, "epsilon", 1e-7)},
                 {"momentum", number_or(&config_, "momentum", 0)},
                 {"centered", int64_t{boolean_or(&config_, "centered", false)}}};
        inputs.push_back(scalars.rate);
        break;
      case Rule::kAdam:
        kind = "adam";
        attrs = {{"beta_1", beta_1()},
                 {"beta_2", beta_2()},
                 {"epsilon", number_or(&config_, "epsilon", 1e-7)},
                 {"amsgrad", int64_t{boolean_or(&config_, "amsgrad", false)}}};
        inputs.push_back(scalars.alpha);
        break;
    }
    if (scalars.decay_rate != kNone) {
      attrs.emplace("has_decay", int64_t{1});
      inputs.push_back(scalars.decay_rate);
    }
    return b_.optimizer_update(kind, std::move(inputs), std::move(attrs));
  }

  // m * average + (1 - m) * param
  ValueId average(ValueId average, ValueId param) {
    const Scalars& scalars = scalars_of(b_.dtype(param));
    return b_.add(b_.mul(average, scalars.ema_momentum), b_.mul(param, scalars.one_minus_ema));
  }

  // The average instead of the parameter every ema_overwrite_frequency iterations.
  ValueId overwrite(ValueId param, ValueId average) {
    if (!config_.has("ema_overwrite_frequency")) {
      return param;
    }
    if (overwrite_now_ == kNone) {
      const ValueId frequency = b_.constant(
          static_cast<double>(config_.integer("ema_overwrite_frequency")), DType::kInt64);
      const ValueId next = b_.add(iteration_, b_.constant(1, DType::kInt64));
      const ValueId whole = b_.mul(b_.div(next, frequency), frequency);
      overwrite_now_ = b_.binary("eq", next, whole);
    }
    return b_.select(overwrite_now_, average, param);
  }

 private:
  // Iterations as the rules count them: floor(raw / accumulation steps).
  static ValueId rule_iteration(Builder& b, const ConfigObject& config, ValueId iteration) {
    const int64_t steps = accumulation(config);
    return steps == 1 ? iteration
                      : b.div(iteration, b.constant(static_cast<double>(steps), DType::kInt64));
  }

  double beta_1() const { return number_or(&config_, "beta_1", 0.9); }
  double beta_2() const { return number_or(&config_, "beta_2", 0.999); }

  const Scalars& scalars_of(DType dtype) {
    const auto known = scalars_.find(dtype);
    if (known != scalars_.end()) {
      return known->second;
    }
    Scalars s;
    s.rate = b_.cast(rate_, dtype);
    if (weight_decay(config_) != 0) {
      s.decay_rate = b_.mul(s.rate, weight_decay(config_));
    }
    if (rule_of(config_) == Rule::kAdam) {
      const ValueId t = b_.add(b_.cast(iteration_, dtype), 1.0);
      const ValueId one = b_.constant(1, dtype);
      const ValueId power_1 = b_.binary("pow", b_.constant(beta_1(), dtype), t);
      const ValueId power_2 = b_.binary("pow", b_.constant(beta_2(), dtype), t);
      s.alpha = b_.div(b_.mul(s.rate, b_.sqrt(b_.sub(one, power_2))), b_.sub(one, power_1));
    }
    if (boolean_or(&config_, "use_ema", false)) {
      const ValueId is_first = b_.binary("eq", iteration_, b_.constant(0, DType::kInt64));
      const double momentum = number_or(&config_, "ema_momentum", 0.99);
      s.ema_momentum = b_.select(is_first, b_.constant(0, dtype), b_.constant(momentum, dtype));
      s.one_minus_ema = b_.sub(b_.constant(1, dtype), s.ema_momentum);
    }
    return scalars_.emplace(dtype, s).first->second;
  }

  ValueId clip_by_norm(ValueId grad, double limit) {
    // sqrt(0) is 0 here and nothing is differentiated, so no guard is needed.
    const ValueId norm = b_.sqrt(b_.reduce_sum_all(b_.square(grad)));
    return b_.div(b_.mul(grad, limit), b_.maximum(norm, limit));
  }

  void clip_by_global_norm(std::vector<ValueId>& grads, double limit) {
    ValueId sum = kNone;
    for (const ValueId grad : grads) {
      if (grad != kNone) {
        const ValueId square = b_.reduce_sum_all(b_.square(grad));
        sum = sum == kNone ? square : b_.add(sum, b_.cast(square, b_.dtype(sum)));
      }
    }
    if (sum == kNone) {
      return;
    }
    const DType dtype = b_.dtype(sum);
    const ValueId norm = b_.sqrt(sum);
    const ValueId finite = b_.mul(b_.minimum(b_.unary("reciprocal", norm), 1 / limit), limit);
    // norm - norm is 0 for a finite norm and NaN otherwise, which then reaches every weight.
    const ValueId scale = b_.add(finite, b_.sub(norm, norm));
    std::map<DType, ValueId> scales = {{dtype, scale}};
    for (ValueId& grad : grads) {
      if (grad != kNone) {
        const DType own = b_.dtype(grad);
        if (!scales.contains(own)) {
          scales[own] = b_.cast(scale, own);
        }
        grad = b_.mul(grad, scales[own]);
      }
    }
  }

  Builder& b_;
  const ConfigObject& config_;
  ValueId rate_;
  ValueId iteration_;
  ValueId overwrite_now_ = kNone;
  std::map<DType, Scalars> scalars_;
};

}  // namespace

Optimizer::Optimizer(const ConfigObject& config)
    : name_(string_or(&config, "name", default_name(config))), config_(config) {}

std::vector<SlotSpec> Optimizer::slots() const {
  std::vector<SlotSpec> slots;
  if (uses_ema()) {
    slots.push_back({"average"});
  }
  if (accumulation_steps() > 1) {
    slots.push_back({"gradient_accumulator"});
  }
  for (SlotSpec& slot : rule_slots(config_)) {
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::string Optimizer::slot_path(std::string_view weight_path, std::string_view slot) const {
  std::string reference(weight_path);
  std::replace(reference.begin(), reference.end(), '/', '_');
  return fmt::format("{}/{}_{}", name_, reference, slot);
}

double Optimizer::learning_rate(int64_t iteration) const {
  const ConfigValue& rate = config_.arg("learning_rate");
  return rate.is_object() ? schedule_rate(rate.object(), iteration) : rate.number();
}

int64_t Optimizer::accumulation_steps() const {
  return accumulation(config_);
}

bool Optimizer::uses_ema() const {
  return boolean_or(&config_, "use_ema", false);
}

Optimizer::Result Optimizer::apply(Builder& builder, std::vector<WeightUpdate> weights,
                                   ValueId iteration, ValueId rate, bool apply_now) const {
  const Builder::Scope scope = builder.scope(name_);
  const int64_t steps = accumulation_steps();
  const size_t accumulator = uses_ema() ? 1 : 0;  // index of its slot, when steps > 1
  const size_t first_rule_slot = accumulator + (steps > 1 ? 1 : 0);
  Apply apply(builder, config_, iteration, rate);
  Result result;
  std::vector<ValueId> grads;
  for (const WeightUpdate& weight : weights) {
    MESHTRAIN_CHECK(weight.slots.size() == slots().size(), "{} slots of {}", weight.slots.size(),
                    slots().size());
    result.params.push_back(weight.param);
    result.slots.push_back(weight.slots);
    grads.push_back(weight.grad);
    if (steps > 1 && weight.grad != kNone) {
      const ValueId sum = builder.add(weight.grad, weight.slots[accumulator]);
      grads.back() = apply_now ? builder.div(sum, static_cast<double>(steps)) : sum;
      result.slots.back()[accumulator] =
          apply_now ? builder.constant(0, builder.dtype(sum), builder.shape(sum)) : sum;
    }
  }
  if (apply_now) {
    apply.clip(grads);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<ValueId>& slots = result.slots[i];
    if (apply_now && grads[i] != kNone) {
      const std::vector<ValueId> rule_slots(slots.begin() + first_rule_slot, slots.end());
      const std::vector<ValueId> updated = apply.update(weights[i].param, grads[i], rule_slots);
      result.params[i] = updated[0];
      std::copy(updated.begin() + 1, updated.end(), slots.begin() + first_rule_slot);
    }
    if (uses_ema()) {
      slots[0] = apply.average(slots[0], result.params[i]);
      result.params[i] = apply.overwrite(result.params[i], slots[0]);
    }
  }
  return result;
}

void check_optimizer(const ConfigObject& optimizer, Diagnostics& diagnostics) {
  const auto require = [&](std::string_view name, bool holds, std::string_view what) {
    if (!holds) {
      diagnostics.error("E113", optimizer.loc_of(name),
                        fmt::format("`{}` of {} {}", name, optimizer.class_name, what));
    }
  };
  std::vector<std::string> clips;
  for (const char* name : {"clipnorm", "clipvalue", "global_clipnorm"}) {
    if (optimizer.has(name)) {
      clips.push_back(fmt::format("`{}`", name));
      require(name, optimizer.number(name) > 0, "must be greater than 0");
    }
  }
  if (clips.size() > 1) {
    diagnostics
        .error("E113", optimizer.loc,
               fmt::format("{} takes one way of clipping, got {}", optimizer.class_name,
                           join(clips, " and ")))
        .help("keep one of them");
  }
  if (optimizer.has("momentum")) {
    const double momentum = optimizer.number("momentum");
    require("momentum", momentum >= 0 && momentum <= 1, "must be from 0 to 1");
  }
  if (optimizer.has("ema_momentum") && boolean_or(&optimizer, "use_ema", false)) {
    const double momentum = optimizer.number("ema_momentum");
    require("ema_momentum", momentum >= 0 && momentum <= 1, "must be from 0 to 1");
  }
  if (optimizer.has("ema_overwrite_frequency")) {
    require("ema_overwrite_frequency", optimizer.integer("ema_overwrite_frequency") >= 1,
            "must be at least 1");
    require("ema_overwrite_frequency", boolean_or(&optimizer, "use_ema", false),
            "needs `use_ema: true`");
  }
  if (optimizer.has("gradient_accumulation_steps")) {
    require("gradient_accumulation_steps", optimizer.integer("gradient_accumulation_steps") >= 2,
            "must be at least 2");
  }
  if (optimizer.has("learning_rate") && optimizer.arg("learning_rate").is_object()) {
    check_schedule(optimizer.arg("learning_rate").object(), diagnostics);
  }
}

}  // namespace meshtrain
