// The losses and metrics of a model's outputs, resolved and checked.
#include <algorithm>

#include "base/text.h"
#include "engine/sample_weights.h"
#include "engine/step_frame.h"
#include "nn/head_loss.h"
#include "nn/loss_functions.h"

namespace meshtrain {

ValueType StepGraphs::target_type(size_t output) const {
  return {with_batch(kUnknownDim, data_.targets[output].shape), data_.targets[output].dtype};
}

CheckedOutput StepGraphs::checked_output(size_t output) const {
  const int call = model_.outputs()[output];
  const bool is_trained_as_logits =
      std::any_of(losses_.begin(), losses_.end(), [&](const OutputLoss& loss) {
        return loss.output == static_cast<int>(output) && takes_logits(loss.loss).value_or(false);
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
  for (const auto& [id, weight] : class_weights(config_.fit, data_.class_names)) {
    if (classes && id >= *classes && id != ignored) {
      diagnostics
          .error("E113", weight.loc,
                 fmt::format("`class_weight` names class {}; `{}` has {} classes", id,
                             checked.call.name, *classes))
          .help(fmt::format("classes are 0 ... {}", *classes - 1));
    }
  }
}

// Calls `compare` in a graph of its own, with weights of this shape (without the batch), if any.
// Returns false when sizes are not known. Throws InternalError where shapes do not fit.
bool StepGraphs::try_compare(const ConfigObject& object, size_t output, const Compare& compare,
                             const std::optional<Shape>& weights) const {
  constexpr int64_t kSomeBatch = 8209;  // no other dimension's size
  const ValueType target = target_type(output);
  Graph graph;
  Builder b(graph);
  bool are_known = true;
  const auto input = [&](const char* name, const Shape& shape, DType dtype) {
    const Shape known = with_known_sizes(shape, target.shape);
    are_known =
        are_known && !known.empty() && std::count(known.begin() + 1, known.end(), kUnknownDim) == 0;
    return are_known ? b.input(name, with_batch(kSomeBatch, without_first(known)), dtype, true)
                     : kNone;
  };
  const ValueId y = input("y", target.shape, target.dtype);
  const ValueId p = input("p", model_.calls()[model_.outputs()[output]].output_shape, dtype_);
  if (object.class_name == "Lambda") {  // no others name them
    for (const auto& [name, shape] : named_outputs()) {
      b.name_value(name, input(name.c_str(), shape, dtype_));
    }
  }
  if (are_known) {
    compare(b, y, p,
            weights ? b.input("weight", with_batch(kSomeBatch, *weights), dtype_, true) : kNone);
  }
  return are_known;
}

// Reports sample weights that `compare` cannot weigh its values with; which shapes it can, only its
// graph says.
void StepGraphs::check_weights(const ConfigObject& object, const std::string& what, size_t output,
                               const Compare& compare, Diagnostics& diagnostics) const {
  if (!data_.has_sample_weight || !try_compare(object, output, compare, {})) {
    return;
  }
  try {
    try_compare(object, output, compare, data_.sample_weight_shape);
  } catch (const InternalError&) {
    diagnostics
        .error("E123", object.loc,
               fmt::format("sample weights {} do not fit the values of {} of an output {}",
                           shape_string(with_batch(kUnknownDim, data_.sample_weight_shape)), what,
                           shape_string(model_.calls()[model_.outputs()[output]].output_shape)))
        .help("give weights of the shape of its values, or one for each sample");
  }
}

namespace {

void warn_of_padding(const std::string& what, const ConfigObject& object, const Model::Call& output,
                     Diagnostics& diagnostics) {
  diagnostics
      .warning("W630", object.loc,
               fmt::format("{} gives no value for each step of `{}`: padding counts in it, in "
                           "spite of the mask",
                           what, output.name))
      .help("keep axis 1, the steps: `axis=-1` reduces over the last axis alone");
}

}  // namespace

// Warns of a loss of an output with a mask whose values are not those of single steps.
void StepGraphs::check_loss_mask(const ConfigObject& loss, size_t output,
                                 Diagnostics& diagnostics) const {
  const Model::Call& call = model_.calls()[model_.outputs()[output]];
  bool has_steps = true;
  const auto compare = [&](Builder& b, ValueId y, ValueId p, ValueId) {
    const LossValues found = loss_values(b, loss.class_name, &loss, y, p, b.dtype(p));
    const Shape& shape = b.shape(found.values);
    has_steps = shape.size() > 1 && shape[1] == b.shape(p)[1];
  };
  if (call.has_mask && try_compare(loss, output, compare, {}) && !has_steps) {
    warn_of_padding("the loss", loss, call, diagnostics);
  }
}

// Whether `compare` can weigh the steps of an output that has some.
bool StepGraphs::weighs_steps(const ConfigObject& object, size_t output,
                              const Compare& compare) const {
  const Shape& shape = model_.calls()[model_.outputs()[output]].output_shape;
  const Shape known = with_known_sizes(shape, target_type(output).shape);
  if (known.size() < 2 || known[1] == kUnknownDim) {
    return true;
  }
  try {
    try_compare(object, output, compare, Shape{known[1]});
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

// Notes whether a loss or metric of an output needs the whole of it.
void StepGraphs::note_reader(size_t output, const ConfigObject& object, bool reads_token_losses) {
  if (object.class_name == "Lambda") {  // may name any output
    for (size_t o = 0; o < model_.outputs().size(); ++o) {
      read_whole_.insert(o);
    }
  } else if (!reads_token_losses) {
    read_whole_.insert(output);
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
      read_whole_.insert(o);
      continue;  // an output without a loss
    }
    double weight = 1;
    for (const auto& [key, value] : config_.compile.loss_weights) {
      weight = key == name ? value.value : weight;
    }
    const Shape& prediction = model_.calls()[outputs[o]].output_shape;
    const ConfigObject loss = fitting_loss(match->object, target_type(o).shape, prediction);
    note_reader(o, loss, is_token_loss(loss));
    const int problems = diagnostics.num_errors();
    check_loss(loss, target_type(o).shape, prediction, diagnostics, named_outputs());
    if (diagnostics.num_errors() != problems) {
      misfits_.insert(o);
    } else {
      check_class_weight(loss, o, diagnostics);
      warn_of_loss_scale(loss, checked_output(o), diagnostics);
      warn_of_single_class(loss, checked_output(o), diagnostics);
      check_loss_mask(loss, o, diagnostics);
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

// The checked metric of one output.
Metric StepGraphs::output_metric(const ConfigObject& object, size_t output, bool weighted,
                                 Diagnostics& diagnostics) const {
  const Model::Call& call = model_.calls()[model_.outputs()[output]];
  Diagnostics found;
  Metric metric = make_metric(object, target_type(output).shape, call.output_shape, dtype_, found,
                              named_outputs());
  const bool says_shapes_only =
      std::all_of(found.list().begin(), found.list().end(),
                  [](const Diagnostic& problem) { return problem.code == "E123"; });
  if (!misfits_.contains(output) || !says_shapes_only) {  // else the loss' error says it
    diagnostics.append(found);
  }
  if (found.has_errors()) {
    return metric;
  }
  const std::string what = fmt::format("metric `{}`", metric.name);
  const Compare update = [&](Builder& b, ValueId y, ValueId p, ValueId weight) {
    std::vector<ValueId> state;
    for (const Metric::State& s : metric.states) {
      state.push_back(b.input("state", s.shape, s.dtype.value_or(dtype_), /*batch=*/false));
    }
    metric.update(b, y, p, weight, state);
  };
  if (weighted) {
    check_weights(object, what, output, update, diagnostics);
  }
  if (call.has_mask && metric.takes_mask && !weighs_steps(object, output, update)) {
    metric.takes_mask = false;
    warn_of_padding(what, object, call, diagnostics);
  }
  warn_of_single_class(object, checked_output(output), diagnostics);
  return metric;
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
        const CheckedOutput checked = checked_output(o);
        note_reader(o, entry.object, is_token_metric(entry.object, checked.y_true, checked.y_pred));
        warn_of_metric_scale(entry.object, checked, diagnostics);
        Metric metric = output_metric(entry.object, o, weighted, diagnostics);
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

}  // namespace meshtrain
