#include "engine/step_graph.h"

#include <algorithm>

#include "base/text.h"
#include "config/callback_classes.h"
#include "engine/head_losses.h"
#include "nn/head_loss.h"
#include "nn/regularizers.h"

namespace meshtrain {

std::string input_name(size_t index) {
  return fmt::format("x:{}", index);
}
std::string target_name(size_t index) {
  return fmt::format("y:{}", index);
}

// A graph in the making: the values that its parts share.
struct StepGraphs::Frame {
  Graph graph;
  Builder builder{graph};
  int64_t batch = 0;
  Optimizer::State optimizer;  // when training
  ValueId step = kNone;        // what random numbers depend on
  ValueId sample_weight = kNone;
  std::vector<ValueId> parameters;  // beside the model's weights
  std::vector<ValueId> moved;       // new values of weights that layers change, or kNone
  std::vector<ValueId> targets;
  std::vector<ValueId> predictions;
  std::vector<ValueId> masks;   // of the predictions' steps, or kNone
  std::vector<ValueId> losses;  // of each entry of losses_
  ValueId loss = kNone;         // their weighted sum and the penalties
  std::vector<ValueId> penalties;
  std::vector<std::pair<ValueId, size_t>> penalized;  // values of weights with a regularizer
};

namespace {

// In the order of update_norms().
constexpr const char* kNorms[] = {"gradient_norm", "weight_norm", "update_ratio"};

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

}  // namespace

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
    variable.shape = weight->shape;
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
  add_kept_variables();
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

ValueType StepGraphs::target_type(size_t output) const {
  return {with_batch(kUnknownDim, data_.targets[output].shape), data_.targets[output].dtype};
}

CheckedOutput StepGraphs::checked_output(size_t output) const {
  const int call = model_.outputs()[output];
  const bool is_trained_as_logits =
      std::any_of(losses_.begin(), losses_.end(), [&](const OutputLoss& loss) {
        return loss.output == static_cast<int>(output) && takes_logits(loss.loss);
      });
  return {model_.calls()[call], origins_[call], target_type(output).shape,
          model_.calls()[call].output_shape, is_trained_as_logits};
}

// Shapes of all outputs, for expressions of losses and metrics.
NamedShapes StepGraphs::named_outputs() const {
  NamedShapes out;
  for (size_t o = 0; o < model_.outputs().size(); ++o) {
    out.emplace_back(model_.output_names()[o], model_.calls()[model_.outputs()[o]].output_shape);
  }
  return out;
}

// Reports weights of classes that the output does not have, where loss and shapes say how many
// there are.
void StepGraphs::check_class_weight(const ConfigObject& loss, size_t output,
                                    Diagnostics& diagnostics) const {
  const CheckedOutput checked = checked_output(output);
  const std::optional<int64_t> classes = known_classes(loss, checked.y_true, checked.y_pred);
  const std::optional<int64_t> ignored = ignored_class(loss);
  for (const auto& [id, weight] : config_.fit.class_weight) {
    if (classes && id >= *classes && id != ignored) {
      diagnostics
          .error("E113", weight.loc,
                 fmt::format("`class_weight` names class {}; `{}` has {} classes", id,
                             checked.call.name, *classes))
          .help(fmt::format("classes are 0 ... {}", *classes - 1));
    }
  }
}

// Reports sample weights that `compare` cannot weigh its values with; which shapes it can, only its
// graph says.
void StepGraphs::check_weights(const ConfigObject& object, const std::string& what, size_t output,
                               const Compare& compare, Diagnostics& diagnostics) const {
  constexpr int64_t kSomeBatch = 8209;  // no other dimension's size
  const Shape& prediction = model_.calls()[model_.outputs()[output]].output_shape;
  const NamedShapes outputs =
      object.class_name == "Lambda" ? named_outputs() : NamedShapes();  // no others name them
  const auto build = [&](bool weighs) {
    Graph graph;
    Builder b(graph);
    const ValueType target = target_type(output);
    const auto input = [&](const char* name, const Shape& shape, DType dtype) {
      return b.input(name, with_batch(kSomeBatch, shape), dtype, true);
    };
    const ValueId y = input("y", data_.targets[output].shape, target.dtype);
    const ValueId p = input("p", Shape(prediction.begin() + 1, prediction.end()), dtype_);
    for (const auto& [name, shape] : outputs) {
      b.name_value(name, input(name.c_str(), Shape(shape.begin() + 1, shape.end()), dtype_));
    }
    compare(b, y, p, weighs ? input("weight", data_.sample_weight_shape, dtype_) : kNone);
  };
  const auto has_sizes = [](const Shape& shape) {  // all but the batch
    return !shape.empty() && std::count(shape.begin(), shape.end(), kUnknownDim) <= 1;
  };
  const bool are_known = has_sizes(prediction) &&
                         std::all_of(outputs.begin(), outputs.end(),
                                     [&](const auto& named) { return has_sizes(named.second); });
  if (!data_.has_sample_weight || !are_known) {
    return;
  }
  build(false);
  try {
    build(true);
  } catch (const InternalError&) {
    diagnostics
        .error("E123", object.loc,
               fmt::format("sample weights {} do not fit the values of {} of an output {}",
                           shape_string(with_batch(kUnknownDim, data_.sample_weight_shape)), what,
                           shape_string(prediction)))
        .help("give weights of the shape of its values, or one for each sample");
  }
}

void StepGraphs::resolve_losses(Diagnostics& diagnostics) {
  const auto& outputs = model_.outputs();
  const auto& entries = config_.compile.loss;
  for (size_t o = 0; o < outputs.size() && o < data_.targets.size(); ++o) {
    const std::string& name = model_.output_names()[o];
    const OutputObject* match = nullptr;
    for (size_t e = 0; e < entries.size(); ++e) {
      const bool in_order = entries[e].output.empty() && entries.size() == outputs.size() && e == o;
      const bool for_all = entries[e].output.empty() && entries.size() == 1;
      if (entries[e].output == name || in_order || for_all) {
        match = &entries[e];
      }
    }
    if (match == nullptr) {
      continue;  // an output without a loss
    }
    double weight = 1;
    for (const auto& [key, value] : config_.compile.loss_weights) {
      weight = key == name ? value.value : weight;
    }
    const Shape& prediction = model_.calls()[outputs[o]].output_shape;
    const ConfigObject loss = fitting_loss(match->object, target_type(o).shape, prediction);
    const int problems = diagnostics.num_errors();
    check_loss(loss, target_type(o).shape, prediction, diagnostics, named_outputs());
    if (diagnostics.num_errors() != problems) {
      misfits_.insert(o);
    } else {
      check_class_weight(loss, o, diagnostics);
      warn_of_loss_scale(loss, checked_output(o), diagnostics);
      warn_of_constant_output(checked_output(o), diagnostics);
      check_weights(
          loss, loss.class_name, o,
          [&](Builder& b, ValueId y, ValueId p, ValueId weight) {
            add_loss(b, loss, y, p, weight);
          },
          diagnostics);
    }
    losses_.push_back({static_cast<int>(o), loss, weight});
  }
}

void StepGraphs::track(Metric metric, int output, bool weighted) {
  std::string name = metric.name;
  const auto taken = [&](const std::string& candidate) {
    return std::any_of(metrics_.begin(), metrics_.end(), [&](const TrackedMetric& tracked) {
      return tracked.metric.name == candidate;
    });
  };
  if (weighted && taken(name)) {  // "weighted_mae", "price_weighted_mae"
    const bool has_prefix = output != kNone && model_.outputs().size() > 1;
    const size_t prefix = has_prefix ? model_.output_names()[output].size() + 1 : 0;
    name.insert(prefix, "weighted_");
  }
  const std::string base = name;
  for (int i = 1; taken(name); ++i) {
    name = fmt::format("{}_{}", base, i);
  }
  metric.name = name;
  TrackedMetric tracked{std::move(metric), output, weighted, {}};
  for (const Metric::State& state : tracked.metric.states) {
    const DType dtype = state.dtype.value_or(dtype_);
    Variable variable =
        scalar_variable(tracked.metric.name + "/" + state.name, dtype, VariableRole::kMetric);
    variable.shape = state.shape;
    tracked.states.push_back(static_cast<int>(variables_.size()));
    variables_.push_back(std::move(variable));
  }
  metrics_.push_back(std::move(tracked));
}

void StepGraphs::resolve_metrics(Diagnostics& diagnostics) {
  const auto& outputs = model_.outputs();
  track(make_mean("loss"), kNone, true);
  if (losses_.size() > 1) {
    for (const OutputLoss& loss : losses_) {
      track(make_mean(model_.output_names()[loss.output] + "_loss"), kNone, true);
    }
  }
  const auto add_all = [&](const std::vector<OutputObject>& entries, bool weighted) {
    for (size_t o = 0; o < outputs.size() && o < data_.targets.size(); ++o) {
      for (const OutputObject& entry : entries) {
        if (!entry.output.empty() && entry.output != model_.output_names()[o]) {
          continue;
        }
        warn_of_metric_scale(entry.object, checked_output(o), diagnostics);
        Diagnostics found;
        Metric metric =
            make_metric(entry.object, target_type(o).shape, model_.calls()[outputs[o]].output_shape,
                        dtype_, found, named_outputs());
        const bool says_shapes_only =
            std::all_of(found.list().begin(), found.list().end(),
                        [](const Diagnostic& problem) { return problem.code == "E123"; });
        if (!misfits_.contains(o) || !says_shapes_only) {  // else the loss' error says it
          diagnostics.append(found);
        }
        if (weighted && !found.has_errors()) {
          check_weights(
              entry.object, fmt::format("metric `{}`", metric.name), o,
              [&](Builder& b, ValueId y, ValueId p, ValueId weight) {
                std::vector<ValueId> state;
                for (const Metric::State& s : metric.states) {
                  state.push_back(
                      b.input("state", s.shape, s.dtype.value_or(dtype_), /*batch=*/false));
                }
                metric.update(b, y, p, weight, state);
              },
              diagnostics);
        }
        if (outputs.size() > 1) {
          metric.name = model_.output_names()[o] + "_" + metric.name;
        }
        track(std::move(metric), static_cast<int>(o), weighted);
      }
    }
  };
  add_all(config_.compile.metrics, false);
  add_all(config_.compile.weighted_metrics, true);
  for (size_t n = 0; config_.run.log_norms && n < std::size(kNorms); ++n) {
    Metric norm = make_mean(kNorms[n]);
    norm.has_direction = false;
    track(std::move(norm), kNone, false);
    metrics_.back().only_training = true;
  }
}

void StepGraphs::forward(Frame& frame, int64_t batch, bool with_targets, bool training) const {
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
    const ValueId raw = builder.input(
        kSampleWeightInput, with_batch(batch, data_.sample_weight_shape), DType::kFloat32, true);
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
  const auto pinned = [&](const std::string& key, ValueId value) {
    return pins_.contains(key) ? builder.pin(value, key) : value;
  };
  frame.predictions =
      model_.apply(builder, inputs, frame.parameters, training, frame.step, config_.seed.value,
                   pinned, &frame.penalties, &frame.moved, &frame.masks);
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
    const CheckedOutput checked = checked_output(o);
    const bool is_only =
        std::count(frame.predictions.begin(), frame.predictions.end(), frame.predictions[o]) == 1;
    if (is_only && reads_token_losses(config_.compile, model_.output_names(), o, checked.y_true,
                                      checked.y_pred)) {
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

// d loss / d weight in the weight's gradient layout; kNone for weights that do not train or that
// the loss does not depend on. Differentiated with respect to every use of a weight, so that the
// gradient of a use has the sharding of the use; the sum over the uses then gets the gradient
// layout.
std::vector<ValueId> StepGraphs::weight_gradients(Frame& frame) const {
  Builder& builder = frame.builder;
  std::vector<ValueId> uses;
  std::vector<int> weight_of_use;
  for (const Node& node : frame.graph.nodes) {
    if (node.op->kind == OpKind::kVarUse) {
      const int variable =
          static_cast<int>(frame.graph.producer(node.inputs[0]).attr_int("variable"));
      if (variables_[variable].trainable) {
        uses.push_back(node.outputs[0]);
        weight_of_use.push_back(variable);
      }
    }
  }
  std::vector<ValueId> wanted = uses;
  for (const auto& [use, weight] : frame.penalized) {
    wanted.push_back(use);
  }
  const ValueId loss = optimizer_.scaled_loss(builder, frame.loss, frame.optimizer.scalars);
  const std::vector<ValueId> of_uses = gradients(builder, loss, wanted);
  builder.set_phase(Phase::kBackward);
  std::vector<ValueId> sums(frame.parameters.size(), kNone);
  for (size_t u = 0; u < uses.size(); ++u) {
    if (of_uses[u] != kNone) {
      ValueId& sum = sums[weight_of_use[u]];
      sum = sum == kNone ? of_uses[u] : builder.add(sum, of_uses[u]);
    }
  }
  for (size_t w = 0; w < sums.size(); ++w) {
    if (sums[w] != kNone) {
      const auto scope = builder.scope("gradients/" + variables_[w].path);
      sums[w] = builder.apply("reshard", {sums[w]},
                              {{"variable", static_cast<int64_t>(w)}, {"layout", "grad"}});
    }
  }
  for (size_t p = 0; p < frame.penalized.size(); ++p) {
    const ValueId term = of_uses[uses.size() + p];
    if (term != kNone) {
      ValueId& sum = sums[frame.penalized[p].second];
      sum = sum == kNone ? term : builder.add(sum, term);
    }
  }
  return sums;
}

// What a layer makes of a weight that does not train: an average in training, a state in every
// step.
void StepGraphs::move_weight(Frame& frame, size_t weight) const {
  if (frame.moved[weight] == kNone) {
    return;
  }
  Builder& builder = frame.builder;
  const auto scope = builder.scope("moving/" + variables_[weight].path);
  builder.update(
      static_cast<int>(weight),
      builder.apply("reshard", {frame.moved[weight]},
                    {{"variable", static_cast<int64_t>(weight)}, {"layout", "storage"}}));
}

void StepGraphs::move_weights(Frame& frame) const {
  frame.builder.set_phase(Phase::kUpdate);
  for (size_t w = 0; w < frame.moved.size(); ++w) {
    move_weight(frame, w);
  }
}

void StepGraphs::update_weights(Frame& frame, bool apply_now) const {
  Builder& builder = frame.builder;
  const std::vector<ValueId> grads = weight_gradients(frame);
  builder.set_phase(Phase::kUpdate);
  const ValueId rate = builder.input(kLearningRateInput, {}, dtype_, false);
  const auto to_layout = [&](ValueId value, size_t weight, const char* layout) {
    return builder.apply("reshard", {value},
                         {{"variable", static_cast<int64_t>(weight)}, {"layout", layout}});
  };
  std::vector<Optimizer::WeightUpdate> updates;
  std::vector<size_t> weights;
  for (size_t w = 0; w < grads.size(); ++w) {
    if (!variables_[w].trainable) {
      move_weight(frame, w);
      continue;
    }
    const auto scope = builder.scope(optimizer_.name() + "/" + variables_[w].path);
    Optimizer::WeightUpdate update;
    update.param = to_layout(frame.parameters[w], w, "state");
    update.path = variables_[w].path;
    update.constraint = model_.weights()[w]->constraint.get();
    update.grad = grads[w] == kNone ? kNone : to_layout(grads[w], w, "state");
    for (const int slot : slot_variables_[w]) {
      update.slots.push_back(builder.parameter(slot));
    }
    updates.push_back(std::move(update));
    weights.push_back(w);
  }
  const auto scope = builder.scope(optimizer_.name());
  const Optimizer::Result result =
      optimizer_.apply(builder, updates, frame.optimizer, rate, apply_now);
  if (config_.run.log_norms && apply_now) {
    update_norms(frame, updates, result.params);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t w = weights[i];
    if (result.params[i] != updates[i].param) {
      builder.update(static_cast<int>(w), to_layout(result.params[i], w, "storage"));
    }
    for (size_t s = 0; s < result.slots[i].size(); ++s) {
      if (result.slots[i][s] != updates[i].slots[s]) {
        builder.update(slot_variables_[w][s], result.slots[i][s]);
      }
    }
  }
  builder.update(iteration_, result.state.iteration);
  for (size_t s = 0; s < scalars_.size(); ++s) {
    if (result.state.scalars[s] != frame.optimizer.scalars[s]) {
      builder.update(scalar_variables_[s], result.state.scalars[s]);
    }
  }
}

// Euclidean norms over all trainable weights: of the gradient before any clipping, of the weights
// before the step, and of the step beside the latter. A step that the loss scale skips counts as
// none.
void StepGraphs::update_norms(Frame& frame, const std::vector<Optimizer::WeightUpdate>& before,
                              const std::vector<ValueId>& after) const {
  Builder& b = frame.builder;
  const auto scope = b.scope("norms");
  const auto zero = [&] { return b.constant(0, dtype_); };
  // Not `square`: sums of it are shared with a clip by norm, which then adds up in another order.
  const auto add_square = [&](ValueId sum, ValueId value) {
    const ValueId typed = b.cast(value, dtype_);
    return b.add(sum, b.reduce_sum_all(b.mul(typed, typed)));
  };
  ValueId gradient = zero(), weight = zero(), change = zero();
  for (size_t i = 0; i < before.size(); ++i) {
    weight = add_square(weight, before[i].param);
    if (before[i].grad != kNone) {
      gradient = add_square(gradient, before[i].grad);
    }
    if (after[i] != before[i].param) {
      change = add_square(change, b.sub(b.cast(after[i], dtype_), b.cast(before[i].param, dtype_)));
    }
  }
  const ValueId size = b.sqrt(weight);
  const ValueId ratio = b.select(b.binary("eq", size, zero()), zero(), b.div(b.sqrt(change), size));
  const ValueId norms[] = {optimizer_.unscaled(b, b.sqrt(gradient), frame.optimizer.scalars), size,
                           ratio};
  const ValueId is_finite = b.unary("is_finite", norms[0]);
  const ValueId one = b.select(is_finite, b.constant(1, dtype_), zero());
  size_t next = 0;
  for (const TrackedMetric& tracked : metrics_) {
    if (!tracked.only_training) {
      continue;
    }
    std::vector<ValueId> state;
    for (const int variable : tracked.states) {
      state.push_back(b.parameter(variable));
    }
    const ValueId value = norms[next++];
    const std::vector<ValueId> fresh =
        optimizer_.scales_loss()
            ? tracked.metric.update(b, kNone, b.select(is_finite, value, zero()), one, state)
            : tracked.metric.update(b, kNone, value, b.constant(1, dtype_), state);
    for (size_t s = 0; s < fresh.size(); ++s) {
      b.update(tracked.states[s], fresh[s]);
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

Graph StepGraphs::predict(int64_t batch) const {
  Frame frame;
  forward(frame, batch, false, false);
  for (size_t o = 0; o < frame.predictions.size(); ++o) {
    frame.builder.output(fmt::format("output:{}", o), frame.predictions[o]);
  }
  move_weights(frame);
  return std::move(frame.graph);
}

}  // namespace meshtrain
