// The gradients of a step and what they, and layers, make of the weights.
#include "engine/step_frame.h"
#include "nn/graph_parts.h"

namespace meshtrain {

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
  const ValueId rates = builder.input(kLearningRateInput, optimizer_.rates_shape(), dtype_, false);
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
      optimizer_.apply(builder, updates, frame.optimizer, rates, apply_now);
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
  const auto square = [&](ValueId value) {
    const ValueId typed = b.cast(value, dtype_);
    return b.reduce_sum_all(b.mul(typed, typed));
  };
  std::vector<ValueId> gradients = {zero()}, weights = {zero()}, changes = {zero()};
  for (size_t i = 0; i < before.size(); ++i) {
    weights.push_back(square(before[i].param));
    if (before[i].grad != kNone) {
      gradients.push_back(square(before[i].grad));
    }
    if (after[i] != before[i].param) {
      changes.push_back(square(b.sub(b.cast(after[i], dtype_), b.cast(before[i].param, dtype_))));
    }
  }
  const ValueId gradient = sum_of_scalars(b, gradients), change = sum_of_scalars(b, changes);
  const ValueId size = b.sqrt(sum_of_scalars(b, weights));
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

}  // namespace meshtrain
