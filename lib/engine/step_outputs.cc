// The losses and metrics of a model's outputs, resolved and checked.
#include <algorithm>

#include "base/text.h"
#include "engine/sample_weights.h"
#include "engine/step_frame.h"
#include "nn/head_loss.h"

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
    const ValueId p = input("p", without_first(prediction), dtype_);
    for (const auto& [name, shape] : outputs) {
      b.name_value(name, input(name.c_str(), without_first(shape), dtype_));
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
        const CheckedOutput checked = checked_output(o);
        note_reader(o, entry.object, is_token_metric(entry.object, checked.y_true, checked.y_pred));
        warn_of_metric_scale(entry.object, checked, diagnostics);
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

}  // namespace meshtrain
