// The rule of an optimizer: its update of one weight. A rule is an entry of its family's table. The
// code that all rules share is in optimizer_apply.cc (accumulation, clipping, averages,
// constraints) and optimizer.cc (members, the loss scale). Source: Keras 3 optimizers, one file
// each.
//
// Rules of elementwise ops become one pass over the weight (passes/fuse.h); the rules of SGD,
// RMSprop and Adam are one op, optimizer_update.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/compile.h"

namespace meshtrain {

// Shared by the rules of one update: the builder, the arguments, and scalars in each weight's
// dtype, created once.
class RuleStep {
 public:
  // `iteration`: iterations as the rules count them, int64, before the step.
  RuleStep(Builder& builder, const ConfigObject& config, ValueId iteration, ValueId rate);

  Builder& b;
  const ConfigObject& config;
  std::vector<ValueId> scalars;  // the rule's; `begin` replaces them by their new values

  double number(std::string_view name) const { return config.number(name); }
  ValueId iteration() const { return iteration_; }
  ValueId rate(DType dtype);                                  // learning rate
  ValueId t(DType dtype, double ahead = 0);                   // iterations + 1 + ahead
  ValueId power(double base, DType dtype, double ahead = 0);  // base^t
  ValueId rest(double base, DType dtype);                     // 1 - base^t
  ValueId decay_rate(double weight_decay, DType dtype);       // weight_decay * rate; kNone for 0
  // Returns the result of `make`, which is called once per key and dtype.
  template <class Make>
  ValueId shared(std::string key, DType dtype, Make make) {
    const auto entry = shared_.find({key, dtype});
    if (entry != shared_.end()) {
      return entry->second;
    }
    const ValueId value = make();
    shared_[{std::move(key), dtype}] = value;
    return value;
  }

  // (1 - rate_of_change) old + rate_of_change fresh, as Keras rounds it.
  ValueId towards(ValueId old, ValueId fresh, double rate_of_change);
  // sqrt(velocity / (1 - beta_2^t)) + epsilon: what Adam's relatives divide by.
  ValueId unbiased_root(ValueId velocity, double beta_2);

 private:
  ValueId iteration_, rate_;
  std::map<std::pair<std::string, DType>, ValueId> shared_;
};

// One weight in an apply.
struct RuleWeight {
  std::string_view path;
  ValueId param = kNone, grad = kNone;
  std::span<const ValueId> slots;
  ValueId decay_rate = kNone;  // weight decay * learning rate; kNone: no decay
};

// param - param * decay_rate: what every rule does first.
ValueId decayed(RuleStep& step, const RuleWeight& weight);
// The op optimizer_update with the decay in it: the new param, then the new slots.
std::vector<ValueId> fused_update(RuleStep& step, const RuleWeight& weight, std::string_view kind,
                                  Attrs attrs, ValueId rate);

struct WeightKind {
  std::string_view path;
  size_t rank = 0;
};

// Adam's step with slots momentum, velocity and, with amsgrad, velocity_hat.
std::vector<ValueId> adam_update(RuleStep& step, const RuleWeight& weight, double beta_1,
                                 double beta_2, double rate_factor, bool amsgrad);
// The first two of these slots.
std::vector<SlotSpec> moment_slots(const ConfigObject& config, const WeightKind& weight);

// Whether a row of zeros behind a weight would change the step of its other rows.
bool depends_on_size(const ConfigObject& config, const WeightKind& weight);

struct OptimizerDef {
  std::string_view class_name;
  // In Keras' order of creation.
  std::vector<SlotSpec> (*slots)(const ConfigObject& config, const WeightKind& weight);
  // The new param, then the new slots.
  std::vector<ValueId> (*update)(RuleStep& step, const RuleWeight& weight);
  // The argument that holds the weight's decay; null: `weight_decay`.
  const char* (*decay_argument)(const ConfigObject& config, const WeightKind& weight) = nullptr;
  // Scalars by name, and what makes them new at the beginning of an apply.
  std::vector<OptimizerScalar> (*scalars)(const ConfigObject& config, DType dtype) = nullptr;
  void (*begin)(RuleStep& step) = nullptr;
};

std::vector<OptimizerDef> gradient_descent_rules();  // optimizer_sgd.cc: SGD, RMSprop, Lion
std::vector<OptimizerDef> adam_rules();     // optimizer_adam.cc: Adam, AdamW, Adamax, Nadam, ...
std::vector<OptimizerDef> adagrad_rules();  // optimizer_adagrad.cc: Adagrad, Adadelta, Ftrl
std::vector<OptimizerDef> matrix_rules();   // optimizer_matrix.cc: Adafactor, Muon, Lamb

// By Keras' class name; the config's reader has refused others.
const OptimizerDef& find_rule(const ConfigObject& config);

// Steps whose gradients are one update.
int64_t accumulation_steps(const ConfigObject& config);

// One apply of the rule that `config` names, in Keras' order: accumulate, clip, decay, rule,
// average, overwrite, constraint. The gradients are those of the loss itself.
Optimizer::Result apply_rule(Builder& builder, const ConfigObject& config,
                             const std::vector<Optimizer::WeightUpdate>& weights,
                             Optimizer::State state, ValueId rate, bool apply_now);

}  // namespace meshtrain
