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

// --- losses (keras-semantics 8) ----------------------------------------------------------------
// The reduced loss of one output: a scalar. `sample_weight` may be kNone. Division is always by the
// *global* count. Shapes were checked by check_loss.
ValueId add_loss(Builder& builder, const ConfigObject& loss, ValueId y_true, ValueId y_pred,
                 ValueId sample_weight);
// Reports shapes that do not fit (E123 with both shapes and the fix).
void check_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                Diagnostics& diagnostics);
// The shape of targets the loss expects for this prediction, for verbs without data.
Shape implied_target_shape(const ConfigObject& loss, const Shape& y_pred);
bool loss_takes_class_ids(const ConfigObject& loss);  // sparse_categorical_crossentropy
bool is_classification(const ConfigObject& loss);

// --- optimizers (keras-semantics 7) --------------------------------------------------------------
struct SlotSpec {
  std::string name;          // "momentum", "velocity", "average", "gradient_accumulator"
  double initial = 0;        // constant start value
  bool copy_weight = false;  // starts as a copy of the weight instead
};

class Optimizer {
 public:
  explicit Optimizer(const ConfigObject& config);

  const std::string& name() const { return name_; }  // "adam": the prefix of its variable paths
  // Slots of each trainable weight, in Keras' order of creation.
  std::vector<SlotSpec> slots() const;
  // Path of a slot: "adam/d1_kernel_momentum".
  std::string slot_path(std::string_view weight_path, std::string_view slot) const;
  // The rate at `iteration` (raw): constant, or a schedule's.
  double learning_rate(int64_t iteration) const;
  int64_t accumulation_steps() const;  // 1 = none
  bool uses_ema() const;

  struct WeightUpdate {
    ValueId param, grad;         // grad kNone: the weight does not train
    std::vector<ValueId> slots;  // in the order of slots()
  };
  struct Result {
    std::vector<ValueId> params;              // new values, beside the input
    std::vector<std::vector<ValueId>> slots;  // new values
  };
  // One `apply` in Keras' exact order (7.1: accumulate, clip, decay, update, EMA). `iteration`: raw
  // iterations, int64 scalar, before the increment; `rate`: float scalar. `apply_now` is false for
  // the program that only accumulates (iterations where (raw+1) mod N != 0).
  Result apply(Builder& builder, std::vector<WeightUpdate> weights, ValueId iteration, ValueId rate,
               bool apply_now) const;

 private:
  std::string name_;
  const ConfigObject config_;
};

// Problems of arguments that the schema cannot see (momentum outside [0, 1], two clips at once,
// ...).
void check_optimizer(const ConfigObject& optimizer, Diagnostics& diagnostics);

// The named activation (keras-semantics 5.2) of x; `args` may hold its parameters.
ValueId add_activation(Builder& builder, const ConfigValue& activation, ValueId x);

// An initializer of the catalogue (keras-semantics 6). EinsumDense passes its own fans.
struct Fans {
  double in = 0, out = 0;
};
std::function<HostTensor(const Shape&, DType, uint64_t seed, std::string_view path)>
make_initializer(const ConfigValue& initializer, std::optional<Fans> fans = std::nullopt);

}  // namespace meshtrain
