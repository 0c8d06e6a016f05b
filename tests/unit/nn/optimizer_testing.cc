#include "optimizer_testing.h"

#include <map>

#include "support/interpreter.h"

namespace meshtrain::testing {

OptimizerState start_state(const Optimizer& optimizer, std::vector<std::string> paths,
                           std::vector<HostTensor> weights) {
  OptimizerState state;
  const DType dtype = weights[0].dtype();
  state.paths = std::move(paths);
  state.weights = std::move(weights);
  for (size_t i = 0; i < state.weights.size(); ++i) {
    const HostTensor& weight = state.weights[i];
    state.slots.emplace_back();
    for (const SlotSpec& spec : optimizer.slots(state.paths[i], weight.shape().size())) {
      Shape shape = weight.shape();
      if (spec.factored_dim != kNone) {
        shape.erase(shape.begin() + spec.factored_dim);
      }
      HostTensor slot = spec.copy_weight ? weight.clone() : HostTensor(weight.dtype(), shape);
      for (int64_t k = 0; k < slot.size() && !spec.copy_weight; ++k) {
        slot.set(k, spec.initial);
      }
      state.slots.back().push_back(std::move(slot));
    }
  }
  for (const OptimizerScalar& scalar : optimizer.scalars(dtype)) {
    state.scalars.push_back(tensor_of<double>(scalar.dtype, {}, {scalar.initial}));
  }
  return state;
}

OptimizerState apply_step(const Optimizer& optimizer, const OptimizerState& before,
                          const std::vector<const HostTensor*>& grads,
                          const ConfigObject* constraint) {
  Graph graph;
  Builder b(graph);
  std::map<std::string, const HostTensor*> inputs;
  const auto feed = [&](const HostTensor& tensor) {
    const std::string name = std::to_string(inputs.size());
    inputs[name] = &tensor;
    return b.input(name, tensor.shape(), tensor.dtype(), false);
  };
  std::vector<Optimizer::WeightUpdate> updates;
  for (size_t i = 0; i < before.weights.size(); ++i) {
    Optimizer::WeightUpdate update;
    update.param = feed(before.weights[i]);
    update.grad = grads[i] == nullptr ? kNone : feed(*grads[i]);
    update.path = before.paths[i];
    update.constraint = constraint;
    for (const HostTensor& slot : before.slots[i]) {
      update.slots.push_back(feed(slot));
    }
    updates.push_back(std::move(update));
  }
  const HostTensor iteration = tensor_of<int64_t>(DType::kInt64, {}, {before.iteration});
  const HostTensor rate =
      tensor_of<double>(before.weights[0].dtype(), {}, {optimizer.learning_rate(before.iteration)});
  Optimizer::State state;
  state.iteration = feed(iteration);
  for (const HostTensor& scalar : before.scalars) {
    state.scalars.push_back(feed(scalar));
  }
  const bool apply_now = (before.iteration + 1) % optimizer.accumulation_steps() == 0;
  const Optimizer::Result result =
      optimizer.apply(b, std::move(updates), state, feed(rate), apply_now);
  verify(graph);
  const Interpretation run = interpret(graph, inputs, {});
  OptimizerState after;
  after.paths = before.paths;
  for (size_t i = 0; i < result.params.size(); ++i) {
    after.weights.push_back(run.values[result.params[i]].clone());
    after.slots.emplace_back();
    for (const ValueId slot : result.slots[i]) {
      after.slots.back().push_back(run.values[slot].clone());
    }
  }
  for (const ValueId scalar : result.state.scalars) {
    after.scalars.push_back(run.values[scalar].clone());
  }
  after.iteration = static_cast<int64_t>(run.values[result.state.iteration].at(0));
  return after;
}

}  // namespace meshtrain::testing
