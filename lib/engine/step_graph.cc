#include <algorithm>

#include "config/callback_classes.h"
#include "config/source_classes.h"
#include "engine/step_frame.h"
#include "nn/batch_transforms.h"
#include "nn/head_loss.h"
#include "nn/loss_functions.h"
#include "nn/mixing.h"
#include "nn/regularizers.h"

namespace meshtrain {

std::string input_name(size_t index) {
  return fmt::format("x:{}", index);
}
std::string target_name(size_t index) {
  return fmt::format("y:{}", index);
}

Shape with_batch(int64_t batch, const Shape& shape) {
  Shape out = {batch};
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

Variable scalar_variable(std::string path, DType dtype, VariableRole role) {
  Variable variable;
  variable.path = std::move(path);
  variable.dtype = dtype;
  variable.role = role;
  variable.trainable = false;
  return variable;
}

StepGraphs::StepGraphs(const Config& config, const Model& model, const Optimizer& optimizer,
                       const DataSpec& data, DType dtype, std::map<std::string, Sharding> pins,
                       Diagnostics& diagnostics)
    : config_(config),
      model_(model),
      optimizer_(optimizer),
      data_(data),
      dtype_(dtype),
      pins_(std::move(pins)),
      origins_(output_origins(model)),
      scalars_(optimizer.scalars(dtype)) {
  for (const Weight* weight : model.weights()) {
    Variable variable;
    variable.path = weight->path;
    variable.shape = weight->stored_shape();
    if (variable.shape != weight->shape)
      variable.unpadded = weight->shape;
    variable.dtype = weight->dtype;
    variable.trainable = weight->trainable;
    variables_.push_back(std::move(variable));
  }
  const size_t num_weights = variables_.size();
  iteration_ = static_cast<int>(variables_.size());
  variables_.push_back(
      scalar_variable(optimizer.name() + "/iteration", DType::kInt64, VariableRole::kScalar));
  for (const OptimizerScalar& scalar : scalars_) {
    scalar_variables_.push_back(static_cast<int>(variables_.size()));
    variables_.push_back(scalar_variable(scalar.path, scalar.dtype, VariableRole::kScalar));
  }
  for (size_t w = 0; w < num_weights; ++w) {
    const Variable& weight = variables_[w];
    slots_.push_back(weight.trainable ? optimizer.slots(weight.path, weight.shape.size())
                                      : std::vector<SlotSpec>());
    add_slot_variables(w);
  }
  resolve_losses(diagnostics);
  resolve_metrics(diagnostics);
  check_transforms(diagnostics);
  add_kept_variables();
}

// What a graph of training can change. What mixes needs targets that are no class ids, whatever
// their type.
void StepGraphs::check_transforms(Diagnostics& diagnostics) const {
  for (const ConfigObject& transform : config_.data.transform) {
    if (!changes_batches(transform)) {
      continue;
    }
    check_batch_transform(transform, {data_.inputs, data_.targets, {}}, diagnostics);
    if (!is_mixing(transform)) {
      continue;
    }
    const auto sparse = std::find_if(losses_.begin(), losses_.end(), [](const OutputLoss& loss) {
      const TargetKind targets = loss_targets(loss.loss.class_name);
      return targets != TargetKind::kLikeOutput && targets != TargetKind::kAny;
    });
    if (sparse != losses_.end() &&
        is_floating(data_.targets[static_cast<size_t>(sparse->output)].dtype)) {
      diagnostics
          .error("E113", transform.loc,
                 fmt::format("`{}` mixes targets, and `{}` takes class ids", transform.class_name,
                             sparse->loss.spelled))
          .help(loss_targets(sparse->loss.class_name) == TargetKind::kLabelSequence
                    ? "sequences of labels have no mean: leave it out"
                    : kMixedTargetsHelp);
    }
  }
}

void StepGraphs::transform(Frame& frame, std::vector<ValueId>& inputs) const {
  Builder& builder = frame.builder;
  BatchArrays<ValueId> batch{std::move(inputs), std::move(frame.targets), {}};
  if (frame.sample_weight != kNone) {
    batch.sample_weight = frame.sample_weight;
  }
  size_t number = 0;
  for (const ConfigObject& transform : config_.data.transform) {
    if (!changes_batches(transform)) {
      continue;
    }
    const auto scope = builder.scope(fmt::format("transform_{}", number++));
    CallContext context{.builder = builder,
                        .training = true,
                        .step = frame.step,
                        .seed = config_.seed.value,
                        .compute_dtype = dtype_};
    transform_batch(context, transform, batch);
  }
  inputs = std::move(batch.inputs);
  frame.targets = std::move(batch.targets);
  frame.sample_weight = batch.sample_weight.value_or(kNone);
}

// Snapshots of weights have the role of metrics, since the optimizer does not update them. They
// have the sharding of their weights.
void StepGraphs::add_kept_variables() {
  const std::vector<std::string> names = callback_names(config_.callbacks);
  for (size_t c = 0; c < names.size(); ++c) {
    const auto stopping = options_if<EarlyStoppingOptions>(config_.callbacks[c]);
    if (!stopping || !stopping->restore_best_weights) {
      continue;
    }
    kept_[names[c]] = static_cast<int>(variables_.size());
    for (size_t w = 0; w < model_.weights().size(); ++w) {
      Variable kept = variables_[w];
      kept.path = names[c] + "/" + kept.path;
      kept.role = VariableRole::kMetric;
      kept.trainable = false;
      kept.follows = static_cast<int>(w);
      variables_.push_back(std::move(kept));
    }
  }
}

void StepGraphs::add_slot_variables(size_t weight) {
  slot_variables_.emplace_back();
  for (const SlotSpec& spec : slots_[weight]) {
    Variable slot = variables_[weight];
    slot.path = optimizer_.slot_path(slot.path, spec.name);
    slot.role = VariableRole::kSlot;
    slot.trainable = false;
    slot.follows = static_cast<int>(weight);
    slot.factored_dim = spec.factored_dim;
    if (spec.factored_dim != kNone) {
      slot.shape.erase(slot.shape.begin() + spec.factored_dim);
    }
    slot_variables_[weight].push_back(static_cast<int>(variables_.size()));
    variables_.push_back(std::move(slot));
  }
}

void StepGraphs::forward(Frame& frame, int64_t batch, bool with_targets, bool training,
                         PredictOptions options) const {
  Builder& builder = frame.builder;
  frame.graph.variables = variables_;
  // About what a layer with its gradients and a variable with its update become.
  const size_t expected = 12 * model_.calls().size() + 3 * variables_.size();
  frame.graph.nodes.reserve(expected);
  frame.graph.values.reserve(expected);
  frame.batch = batch;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < data_.inputs.size(); ++i) {
    inputs.push_back(builder.input(input_name(i), with_batch(batch, data_.inputs[i].shape),
                                   data_.inputs[i].dtype, true));
  }
  for (size_t i = 0; with_targets && i < data_.targets.size(); ++i) {
    frame.targets.push_back(builder.input(target_name(i), with_batch(batch, data_.targets[i].shape),
                                          data_.targets[i].dtype, true));
  }
  if (with_targets && data_.has_sample_weight) {
    const ValueId raw =
        builder.input(kSampleWeightInput, with_batch(batch, data_.sample_weight_shape),
                      dtype_ == DType::kFloat64 ? dtype_ : DType::kFloat32, true);
    frame.sample_weight = builder.cast(raw, dtype_);
  }
  for (int w = 0; w < static_cast<int>(model_.weights().size()); ++w) {
    frame.parameters.push_back(builder.parameter(w));
  }
  if (training) {
    for (const int scalar : scalar_variables_) {
      frame.optimizer.scalars.push_back(builder.parameter(scalar));
    }
    frame.optimizer.iteration = builder.parameter(iteration_);
    // Steps that a loss scale skips draw other random numbers, too.
    frame.step = optimizer_.scales_loss() ? frame.optimizer.scalars[0] : frame.optimizer.iteration;
  }
  if (training && with_targets) {
    transform(frame, inputs);
  }
  const auto pinned = [&](const std::string& key, ValueId value) {
    return pins_.contains(key) ? builder.pin(value, key) : value;
  };
  frame.predictions =
      model_.apply(builder, inputs, frame.parameters, training, frame.step, config_.seed.value,
                   pinned, &frame.penalties, &frame.moved, &frame.masks,
                   options.in_order ? 1 : config_.data.head_tail.value, options.generating);
  for (size_t o = 0; with_targets && o < frame.predictions.size(); ++o) {
    ValueId& prediction = frame.predictions[o];
    if (dtype_size(builder.dtype(prediction)) == 2) {  // losses and metrics are in float32
      prediction = builder.cast(prediction, dtype_);
    }
    builder.name_value(model_.output_names()[o], prediction);
  }
}

void StepGraphs::add_losses(Frame& frame) const {
  Builder& builder = frame.builder;
  if (config_.compile.loss.empty()) {  // `plan` takes a config without data, whose loss none missed
    throw ConfigError("E112", config_.compile.loc, "`loss` of `compile` is missing")
        .help("write `compile: {loss: mse}`");
  }
  for (size_t o = 0; o < frame.targets.size(); ++o) {
    const bool is_only =
        std::count(frame.predictions.begin(), frame.predictions.end(), frame.predictions[o]) == 1;
    if (is_only && !read_whole_.contains(o)) {
      const auto scope = builder.scope("loss");
      add_token_losses(builder, frame.targets[o], frame.predictions[o]);
    }
  }
  for (const OutputLoss& loss : losses_) {
    const auto scope = builder.scope(
        losses_.size() > 1 ? "loss/" + model_.output_names()[loss.output] : std::string("loss"));
    const ValueId value =
        add_loss(builder, loss.loss, frame.targets[loss.output], frame.predictions[loss.output],
                 frame.sample_weight, frame.masks[loss.output]);
    frame.losses.push_back(value);
    const ValueId weighted = loss.weight == 1 ? value : builder.mul(value, loss.weight);
    frame.loss = frame.loss == kNone ? weighted : builder.add(frame.loss, weighted);
  }
  if (frame.loss != kNone) {
    add_penalties(frame);
    builder.output("loss", frame.loss);
  }
}

// Keras' `loss` includes the penalties of regularizers, of weights that train and of outputs. The
// penalty on a weight has the sharding of its gradient, so that it moves no weight.
void StepGraphs::add_penalties(Frame& frame) const {
  Builder& builder = frame.builder;
  const auto scope = builder.scope("penalties");
  for (size_t w = 0; w < model_.weights().size(); ++w) {
    const Weight& weight = *model_.weights()[w];
    if (weight.regularizer != nullptr && weight.trainable) {
      const auto path = builder.scope(weight.path);
      const ValueId use =
          builder.apply("reshard", {frame.parameters[w]},
                        {{"variable", static_cast<int64_t>(w)}, {"layout", "grad"}});
      frame.penalized.emplace_back(use, w);
      frame.penalties.push_back(add_penalty(builder, *weight.regularizer, use));
    }
  }
  for (const ValueId penalty : frame.penalties) {
    frame.loss = builder.add(frame.loss, builder.cast(penalty, builder.dtype(frame.loss)));
  }
}

// The weights of a metric's values: samples' weights, and 0 where the output's mask is not set.
ValueId StepGraphs::metric_weight(Frame& frame, const TrackedMetric& tracked) {
  Builder& b = frame.builder;
  ValueId weight = tracked.weighted ? frame.sample_weight : kNone;
  const ValueId mask = frame.masks[tracked.output];
  if (mask == kNone || !tracked.metric.takes_mask) {
    return weight;
  }
  const ValueId valid = b.cast(mask, weight == kNone ? DType::kFloat32 : b.dtype(weight));
  if (weight == kNone) {
    return valid;
  }
  return b.mul(b.shape(weight).size() == 1 ? b.expand_dims(weight, 1) : weight, valid);
}

// Keras' loss trackers weigh each batch by its size; the other metrics see targets and predictions.
void StepGraphs::update_metrics(Frame& frame) const {
  Builder& builder = frame.builder;
  builder.set_phase(Phase::kForward);
  size_t next_loss = 0;
  for (const TrackedMetric& tracked : metrics_) {
    if (tracked.only_training) {
      continue;
    }
    std::vector<ValueId> state;
    for (const int variable : tracked.states) {
      state.push_back(builder.parameter(variable));
    }
    const auto scope = builder.scope("metrics/" + tracked.metric.name);
    std::vector<ValueId> fresh;
    if (tracked.output == kNone) {
      const bool is_total = &tracked == &metrics_.front();
      const ValueId value = is_total ? frame.loss : frame.losses[next_loss++];
      const DType dtype = builder.dtype(state[0]);
      const ValueId weight = builder.constant(static_cast<double>(frame.batch), dtype);
      fresh = tracked.metric.update(builder, kNone, builder.cast(value, dtype), weight, state);
    } else {
      fresh = tracked.metric.update(builder, frame.targets[tracked.output],
                                    frame.predictions[tracked.output],
                                    metric_weight(frame, tracked), state);
    }
    for (size_t s = 0; s < fresh.size(); ++s) {
      builder.update(tracked.states[s], fresh[s]);
    }
  }
}

Graph StepGraphs::train(int64_t batch, bool apply_now) const {
  Frame frame;
  forward(frame, batch, true, true);
  add_losses(frame);
  update_metrics(frame);
  update_weights(frame, apply_now);
  return std::move(frame.graph);
}

Graph StepGraphs::test(int64_t batch) const {
  Frame frame;
  forward(frame, batch, true, false);
  add_losses(frame);
  update_metrics(frame);
  move_weights(frame);
  return std::move(frame.graph);
}

Graph StepGraphs::predict(int64_t batch, PredictOptions options) const {
  Frame frame;
  forward(frame, batch, false, false, options);
  for (size_t o = 0; o < frame.predictions.size(); ++o) {
    frame.builder.output(fmt::format("output:{}", o), frame.predictions[o]);
  }
  move_weights(frame);
  return std::move(frame.graph);
}

}  // namespace meshtrain
