#include "optimizer_run.h"

#include "from_golden.h"
#include "unit/nn/optimizer_testing.h"

namespace meshtrain::testing {
namespace {

std::string gradient_input(size_t weight) {
  return "gradient of " + kWeights[weight].first;
}

}  // namespace

OptimizerRun::OptimizerRun(const Optimizer& optimizer, DType dtype, Backend backend)
    : optimizer_(optimizer), dtype_(dtype) {
  std::vector<std::string> paths;
  std::vector<HostTensor> weights, values;
  for (const auto& [name, shape] : kWeights) {
    paths.push_back(name);
    weights.push_back(signed_doubles(paths.size(), shape, 2).cast(dtype));
  }
  OptimizerState state = start_state(optimizer, paths, std::move(weights));
  const auto add = [&](Variable variable, HostTensor value) {
    variable.shape = value.shape();
    variable.dtype = value.dtype();
    variables_.push_back(std::move(variable));
    values.push_back(std::move(value));
    return static_cast<int>(variables_.size()) - 1;
  };
  for (size_t i = 0; i < paths.size(); ++i) {
    add({.path = paths[i]}, std::move(state.weights[i]));
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::vector<SlotSpec> specs = optimizer.slots(paths[i], kWeights[i].second.size());
    slots_.emplace_back();
    for (size_t s = 0; s < specs.size(); ++s) {
      slots_[i].push_back(add({.path = optimizer.slot_path(paths[i], specs[s].name),
                               .role = VariableRole::kSlot,
                               .follows = static_cast<int>(i),
                               .factored_dim = specs[s].factored_dim},
                              std::move(state.slots[i][s])));
    }
  }
  for (HostTensor& scalar : state.scalars) {
    scalars_.push_back(
        add({.path = "scalar " + std::to_string(scalars_.size()), .role = VariableRole::kScalar},
            std::move(scalar)));
  }
  iteration_ =
      add({.path = "iteration", .role = VariableRole::kScalar}, HostTensor(DType::kInt64, {}));
  runner_ = make_runner(backend, variables_);
  for (size_t v = 0; v < values.size(); ++v) {
    runner_->write(static_cast<int>(v), values[v]);
  }
}

// As StepGraphs writes it; the gradients are inputs.
Graph OptimizerRun::graph(bool apply_now) const {
  Graph graph;
  graph.variables = variables_;
  Builder b(graph);
  b.set_phase(Phase::kUpdate);
  const auto to_layout = [&](ValueId value, size_t weight, const char* layout) {
    return b.apply("reshard", {value},
                   {{"variable", static_cast<int64_t>(weight)}, {"layout", layout}});
  };
  std::vector<Optimizer::WeightUpdate> updates;
  for (size_t i = 0; i < kWeights.size(); ++i) {
    const ValueId grad = b.input(gradient_input(i), kWeights[i].second, dtype_, false);
    Optimizer::WeightUpdate update;
    update.param = to_layout(b.parameter(static_cast<int>(i)), i, "state");
    update.grad = to_layout(grad, i, "state");
    update.path = kWeights[i].first;
    for (const int slot : slots_[i]) {
      update.slots.push_back(b.parameter(slot));
    }
    updates.push_back(std::move(update));
  }
  Optimizer::State state;
  state.iteration = b.parameter(iteration_);
  for (const int scalar : scalars_) {
    state.scalars.push_back(b.parameter(scalar));
  }
  const Optimizer::Result result = optimizer_.apply(
      b, updates, state, b.input("learning_rate", optimizer_.rates_shape(), dtype_, false),
      apply_now);
  const auto update = [&](int variable, ValueId before, ValueId after) {
    if (before != after) {
      b.update(variable, after);
    }
  };
  for (size_t i = 0; i < kWeights.size(); ++i) {
    if (result.params[i] != updates[i].param) {
      b.update(static_cast<int>(i), to_layout(result.params[i], i, "storage"));
    }
    for (size_t s = 0; s < slots_[i].size(); ++s) {
      update(slots_[i][s], updates[i].slots[s], result.slots[i][s]);
    }
  }
  update(iteration_, state.iteration, result.state.iteration);
  for (size_t s = 0; s < scalars_.size(); ++s) {
    update(scalars_[s], state.scalars[s], result.state.scalars[s]);
  }
  return graph;
}

void OptimizerRun::step(int64_t t, double factor, double odd) {
  Tensors inputs;
  for (size_t i = 0; i < kWeights.size(); ++i) {
    HostTensor grad(dtype_, kWeights[i].second);
    const HostTensor unscaled =
        signed_doubles(1000 * (i + 1) + static_cast<uint64_t>(t), kWeights[i].second);
    for (int64_t k = 0; k < grad.size(); ++k) {
      grad.set(k, unscaled.at(k) * factor);
    }
    if (i == 2 && odd != 0) {
      grad.set(0, odd);
    }
    inputs[gradient_input(i)] = std::move(grad);
  }
  const int64_t before = iteration();
  HostTensor rates(dtype_, optimizer_.rates_shape());
  for (size_t member = 0; member < optimizer_.num_members(); ++member) {
    rates.set(static_cast<int64_t>(member), optimizer_.learning_rate(before, member));
  }
  inputs["learning_rate"] = std::move(rates);
  const bool apply_now = (before + 1) % optimizer_.accumulation_steps() == 0;
  if (!graphs_.contains(apply_now)) {
    graphs_[apply_now] = runner_->add(graph(apply_now));
  }
  runner_->run(graphs_[apply_now], inputs);
}

}  // namespace meshtrain::testing
