// Losses, metrics and optimizers as functions that add ops to a Graph (Keras' `compile`).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/object.h"
#include "ir/builder.h"
#include "nn/metric.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

class Pattern;  // mesh/layout_map.h

// --- losses -----------------------------------------------------------------------------------
// The reduced loss of one output: a scalar. `sample_weight` may be kNone. Division is always by the
// *global* count. Shapes were checked by check_loss.
// `mask`: that of y_pred (batch, steps), bool, or kNone: other positions count nothing.
ValueId add_loss(Builder& builder, const ConfigObject& loss, ValueId y_true, ValueId y_pred,
                 ValueId sample_weight, ValueId mask = kNone);
// Reports shapes that do not fit (E123 with both shapes and the fix).
void check_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                Diagnostics& diagnostics, const NamedShapes& outputs = {});
// The loss to compute: the word `crossentropy` stands for the class that fits the shapes. The
// others of this section take no word.
ConfigObject fitting_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred);
// The shape of targets the loss expects for this prediction, for subcommands without data.
Shape implied_target_shape(const ConfigObject& loss, const Shape& y_pred);
// True for targets that are ids of classes, one for each prediction or, of CTC, a sequence.
bool loss_takes_class_ids(const ConfigObject& loss);
// For such a loss: the number of classes of a prediction, along its `axis`; and the id that is
// ignored (`ignore_class`).
int64_t num_classes(const ConfigObject& loss, const Shape& y_pred);
std::optional<int64_t> ignored_class(const ConfigObject& loss);
bool is_classification(const ConfigObject& loss);
// True for losses of one class out of several; false where each output is a yes or no of its own.
bool tells_one_of(const ConfigObject& loss);
// How many classes the targets of any loss tell apart; nothing where they are no classes or the
// shapes do not say. Two of one yes/no target.
std::optional<int64_t> known_classes(const ConfigObject& loss, const Shape& y_true,
                                     const Shape& y_pred);

// --- optimizers -------------------------------------------------------------------------------
struct SlotSpec {
  std::string name;          // "momentum", "velocity", "average", "gradient_accumulator"
  double initial = 0;        // constant start value
  bool copy_weight = false;  // starts as a copy of the weight instead
  int factored_dim = kNone;  // the dimension of the weight that the slot does not have
};

// A number that the optimizer keeps for all weights together: Nadam's product, the loss scale.
struct OptimizerScalar {
  std::string path;  // "nadam/u_product"
  DType dtype = DType::kFloat32;
  double initial = 0;
};

// One file per family: optimizer_*.cc; the rules share optimizer_rules.h. A MultiOptimizer has
// several members, each for some of the weights; any other optimizer is its only member.
class Optimizer {
 public:
  explicit Optimizer(const ConfigObject& config);

  const std::string& name() const { return name_; }  // "adam": the prefix of its variable paths
  // Slots of a trainable weight, in Keras' order of creation.
  std::vector<SlotSpec> slots(std::string_view weight_path, size_t rank) const;
  // Path of a slot: "adam/d1_kernel_momentum".
  std::string slot_path(std::string_view weight_path, std::string_view slot) const;
  // `dtype`: the policy's. With a loss scale its own three come first: steps tried, step_counter,
  // dynamic_scale.
  std::vector<OptimizerScalar> scalars(DType dtype) const;
  // The rate of a member at `iteration` (raw): constant, or a schedule's.
  double learning_rate(int64_t iteration, size_t member = 0) const;
  size_t num_members() const { return members_.size(); }
  Shape rates_shape() const;           // (members,), or () of one
  bool has_schedule() const;           // a rate is not the same at all iterations
  int64_t accumulation_steps() const;  // 1 = none
  bool uses_ema(std::string_view weight_path) const;
  // The optimizer of a weight whose mean over all elements, or number of rows, changes the step;
  // null for any other.
  const ConfigObject* whole_rule(std::string_view weight_path, size_t rank) const;
  // LossScaleOptimizer: a step whose gradients are not all finite changes no weight and does not
  // count as an iteration.
  bool scales_loss() const { return !scale_name_.empty(); }
  ValueId scaled_loss(Builder& builder, ValueId loss, std::span<const ValueId> scalars) const;
  // A gradient of that loss, or its norm, as one of the loss itself.
  ValueId unscaled(Builder& builder, ValueId value, std::span<const ValueId> scalars) const;

  struct WeightUpdate {
    ValueId param = kNone, grad = kNone;  // grad kNone: the weight does not train
    std::vector<ValueId> slots;           // in the order of slots()
    std::string path;
    const ConfigObject* constraint = nullptr;
  };
  struct State {
    ValueId iteration = kNone;     // raw iterations before the step: int64 scalar
    std::vector<ValueId> scalars;  // in the order of scalars()
  };
  struct Result {
    std::vector<ValueId> params;              // new values, beside the input
    std::vector<std::vector<ValueId>> slots;  // new values
    State state;                              // new values
  };
  // One `apply` in Keras' exact order (accumulate, clip, decay, update, EMA, constraint).
  // `rates`: the members' learning rates, floats of rates_shape(). `apply_now` is false for the
  // program that only accumulates (iterations where (raw+1) mod N != 0).
  Result apply(Builder& builder, std::vector<WeightUpdate> weights, State state, ValueId rates,
               bool apply_now) const;

 private:
  struct Member {
    ConfigObject config;
    std::string key;
    std::shared_ptr<const Pattern> pattern;  // the key
    std::string name;                        // its own among the members
  };
  size_t member_of(std::string_view weight_path) const;
  static std::vector<OptimizerScalar> scalars_of(const Member& member, DType dtype);
  Result apply_members(Builder& builder, const std::vector<WeightUpdate>& weights,
                       const State& state, ValueId rates, bool apply_now) const;
  Result apply_if_finite(Builder& builder, std::vector<WeightUpdate> weights, State state,
                         ValueId rates, bool apply_now) const;

  std::vector<Member> members_;
  std::optional<double> loss_factor_;  // a fixed one; a dynamic scale takes its place
  std::string name_;
  std::string scale_name_;  // of the LossScaleOptimizer; empty: none
  double initial_scale_ = 1;
  int64_t growth_steps_ = 0;
};

// Problems of arguments that the config's reader does not see: patterns that are none, a frequency
// of overwrites without an average, a loss scale within another.
void check_optimizer(const ConfigObject& optimizer, Diagnostics& diagnostics);
// Adds a W202 for each pattern of the optimizer that is found in none of these paths of weights.
void check_optimizer_patterns(const ConfigObject& optimizer, std::span<const std::string> paths,
                              Diagnostics& diagnostics);

// The named activation (Keras 3 activations/activations.py) of x; `args` may hold its parameters.
ValueId add_activation(Builder& builder, const ConfigValue& activation, ValueId x);

// An initializer of the catalogue (Keras 3 initializers/random_initializers.py). EinsumDense passes
// its own fans.
struct Fans {
  double in = 0, out = 0;
};
std::function<HostTensor(const Shape&, DType, uint64_t seed, std::string_view path)>
make_initializer(const ConfigValue& initializer, std::optional<Fans> fans = std::nullopt);

}  // namespace meshtrain
