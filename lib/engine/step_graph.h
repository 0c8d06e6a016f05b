// The global graphs of a Config's steps: train, accumulate-only, test, predict. They are written as
// if for one device; the passes shard them.
//
// All graphs of a model share one list of variables (weights, optimizer state, metric states), so
// that the programs made from them share one VariableStore.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "nn/compile.h"
#include "nn/model.h"
#include "nn/output_scale.h"

namespace meshtrain {

// Shapes without the batch, and dtypes, of the data as the model's inputs.
struct DataSpec {
  std::vector<ValueType> inputs;
  std::vector<ValueType> targets;
  bool has_sample_weight = false;
  Shape sample_weight_shape;                  // without the batch: () or (steps,)
  std::vector<std::string> class_names = {};  // of the labels, where the data have them
  SourceLoc loc = {};                         // of the data, for errors; no place: data.train's
};

// Names of graph inputs.
std::string input_name(size_t index);   // "x:0"
std::string target_name(size_t index);  // "y:0"
inline constexpr const char* kSampleWeightInput = "sample_weight";
inline constexpr const char* kLearningRateInput = "learning_rate";

// A metric of `compile`, or a loss tracker, with the variables that hold its state.
struct TrackedMetric {
  Metric metric;
  int output = 0;  // index of the model output; kNone: the loss trackers
  bool weighted = false;
  std::vector<int> states;     // variable indices
  bool only_training = false;  // steps that test leave it alone: a norm
};

class StepGraphs {
 public:
  // Resolves losses and metrics against the model's outputs; problems go to `diagnostics`. `pins`:
  // the "<layer>/output" keys that the layout map addresses. Everything referred to must outlive
  // this object.
  StepGraphs(const Config& config, const Model& model, const Optimizer& optimizer,
             const DataSpec& data, DType dtype, std::map<std::string, Sharding> pins,
             Diagnostics& diagnostics);

  const std::vector<Variable>& variables() const { return variables_; }
  // Replaces the variables by the same ones with layouts, for graphs from now on.
  void set_variables(std::vector<Variable> variables) { variables_ = std::move(variables); }
  // Slots of the `weight`-th weight; empty for non-trainable weights.
  const std::vector<SlotSpec>& slots(size_t weight) const { return slots_[weight]; }
  int slot_variable(size_t weight, size_t slot) const { return slot_variables_[weight][slot]; }
  // The first variable of a callback's snapshot of the weights (EarlyStopping with
  // restore_best_weights).
  int kept_variable(const std::string& callback) const { return kept_.at(callback); }
  int iteration_variable() const { return iteration_; }
  // Scalars of the optimizer beside the slots, and their variables.
  const std::vector<OptimizerScalar>& scalars() const { return scalars_; }
  int variable_of_scalar(size_t scalar) const { return scalar_variables_[scalar]; }
  const std::vector<TrackedMetric>& metrics() const { return metrics_; }

  // Outputs: "loss". With `apply_now` = false, gradients are accumulated and weights do not change.
  Graph train(int64_t batch, bool apply_now) const;
  Graph test(int64_t batch) const;  // outputs: "loss"; nothing when there are no targets
  // `in_order`: of steps in their order, whatever data.head_tail says. `generating`: CallContext.
  struct PredictOptions {
    bool in_order = false, generating = false;
  };
  // Outputs: "output:0", ...
  Graph predict(int64_t batch, PredictOptions options = {false, false}) const;

 private:
  struct Frame;  // a graph being built
  void forward(Frame& frame, int64_t batch, bool with_targets, bool training,
               PredictOptions options = {false, false}) const;
  void transform(Frame& frame, std::vector<ValueId>& inputs) const;
  void add_losses(Frame& frame) const;
  void add_penalties(Frame& frame) const;
  void add_slot_variables(size_t weight);
  void add_kept_variables();
  void update_metrics(Frame& frame) const;
  static ValueId metric_weight(Frame& frame, const TrackedMetric& tracked);
  void update_weights(Frame& frame, bool apply_now) const;
  void move_weight(Frame& frame, size_t weight) const;
  void move_weights(Frame& frame) const;
  void update_norms(Frame& frame, const std::vector<Optimizer::WeightUpdate>& before,
                    const std::vector<ValueId>& after) const;
  std::vector<ValueId> weight_gradients(Frame& frame) const;
  void resolve_losses(Diagnostics& diagnostics);
  void resolve_metrics(Diagnostics& diagnostics);
  void check_transforms(Diagnostics& diagnostics) const;
  void track(Metric metric, int output, bool weighted);
  void note_reader(size_t output, const ConfigObject& object, bool reads_token_losses);
  ValueType target_type(size_t output) const;
  CheckedOutput checked_output(size_t output) const;
  NamedShapes named_outputs() const;
  using Compare = std::function<void(Builder&, ValueId y_true, ValueId y_pred, ValueId weight)>;
  void check_class_weight(const ConfigObject& loss, size_t output, Diagnostics& diagnostics) const;
  bool try_compare(const ConfigObject& object, size_t output, const Compare& compare,
                   const std::optional<Shape>& weights) const;
  void check_weights(const ConfigObject& object, const std::string& what, size_t output,
                     const Compare& compare, Diagnostics& diagnostics) const;
  void check_loss_mask(const ConfigObject& loss, size_t output, Diagnostics& diagnostics) const;
  bool weighs_steps(const ConfigObject& object, size_t output, const Compare& compare) const;
  Metric output_metric(const ConfigObject& object, size_t output, bool weighted,
                       Diagnostics& diagnostics) const;

  struct OutputLoss {
    int output = 0;
    ConfigObject loss;
    double weight = 1;
  };

  const Config& config_;
  const Model& model_;
  const Optimizer& optimizer_;
  DataSpec data_;
  DType dtype_;
  std::map<std::string, Sharding> pins_;
  std::vector<OutputOrigin> origins_;  // of the model's calls
  std::vector<Variable> variables_;
  std::vector<std::vector<SlotSpec>> slots_;  // beside the model's weights
  std::vector<std::vector<int>> slot_variables_;
  std::vector<OptimizerScalar> scalars_;
  std::vector<int> scalar_variables_;
  std::map<std::string, int> kept_;
  int iteration_ = kNone;
  std::vector<OutputLoss> losses_;
  std::set<size_t> misfits_;            // outputs whose loss cannot compare them with the targets
  std::set<size_t> read_whole_;         // outputs of which more than token_losses() is read
  std::vector<TrackedMetric> metrics_;  // "loss" first, then per-output losses, then as declared
};

}  // namespace meshtrain
