// The variables of an Engine: weights, what the optimizer keeps of them, and metrics.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "engine/engine_impl.h"

namespace meshtrain {

void Engine::Impl::initialize() {
  const auto& weights = setup.model().weights();
  for (size_t w = 0; w < weights.size(); ++w) {
    const Weight& weight = *weights[w];
    store.write(static_cast<int>(w),
                weight.initializer(weight.shape, weight.dtype,
                                   static_cast<uint64_t>(setup.config().seed.value), weight.path));
  }
  reset_slots();
  reset_metrics();
}

void Engine::Impl::reset_slots() {
  const StepGraphs& graphs = setup.graphs();
  for (size_t w = 0; w < setup.model().weights().size(); ++w) {
    for (size_t s = 0; s < graphs.slots(w).size(); ++s) {
      const int slot = graphs.slot_variable(w, s);
      if (graphs.slots(w)[s].copy_weight) {
        store.write(slot, store.read(static_cast<int>(w)));
      } else {
        store.fill(slot, graphs.slots(w)[s].initial);
      }
    }
  }
  for (size_t s = 0; s < graphs.scalars().size(); ++s) {
    store.fill(graphs.variable_of_scalar(s), graphs.scalars()[s].initial);
  }
}

void Engine::Impl::reset_metrics() {
  for (const TrackedMetric& tracked : setup.graphs().metrics()) {
    for (const int state : tracked.states) {
      store.fill(state, 0);
    }
  }
}

int Engine::Impl::find(std::string_view path) const {
  const int variable = store.find(path);
  if (variable == kNone) {
    std::vector<std::string> paths;
    for (const Variable& v : store.variables()) {
      paths.push_back(v.path);
    }
    ConfigError problem("E410", {}, fmt::format("the model has no variable `{}`", path));
    if (const auto near = nearest_name(path, paths)) {
      problem.help(fmt::format("did you mean `{}`?", *near));
    }
    throw problem;
  }
  return variable;
}

void Engine::Impl::restart_copies(int weight) {
  const StepGraphs& graphs = setup.graphs();
  for (size_t s = 0; s < graphs.slots(weight).size() && iterations_done() == 0; ++s) {
    if (graphs.slots(weight)[s].copy_weight) {
      store.write(graphs.slot_variable(weight, s), store.read(weight));
    }
  }
}

std::vector<std::pair<int, int>> Engine::Impl::averages() const {
  const StepGraphs& graphs = setup.graphs();
  std::vector<std::pair<int, int>> out;
  for (size_t w = 0; w < setup.model().weights().size(); ++w) {
    const bool has_average = setup.optimizer().uses_ema(setup.model().weights()[w]->path);
    for (size_t s = 0; has_average && s < graphs.slots(w).size(); ++s) {
      if (graphs.slots(w)[s].name == "average") {
        out.emplace_back(static_cast<int>(w), graphs.slot_variable(w, s));
      }
    }
  }
  return out;
}

std::vector<double> Engine::Impl::metric_values(const TrackedMetric& tracked) const {
  if (newest.executor != nullptr && processes.monitor != nullptr) {
    newest.executor->output(0, newest.steps - 1);  // says for how many steps this waits
  }
  std::vector<HostTensor> state;
  for (const int variable : tracked.states) {
    state.push_back(store.read(variable));
  }
  return tracked.metric.result(state);
}

double Engine::Impl::metric_value(const TrackedMetric& tracked) const {
  const std::vector<double> values = metric_values(tracked);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

VariableStore& Engine::store() {
  return impl_->store;
}

std::vector<std::string> Engine::weight_paths() const {
  std::vector<std::string> out;
  for (const Weight* weight : impl_->setup.model().weights()) {
    out.push_back(weight->path);
  }
  return out;
}

HostTensor Engine::read_variable(std::string_view path) const {
  return impl_->store.read(impl_->find(path));
}

void Engine::write_variable(std::string_view path, const HostTensor& value) {
  const int variable = impl_->find(path);
  const Variable& v = impl_->store.variables()[variable];
  if (v.own_shape() != value.shape()) {
    throw ConfigError("E410", {},
                      fmt::format("`{}` has shape {}, the given tensor {}", path,
                                  shape_string(v.own_shape()), shape_string(value.shape())));
  }
  impl_->store.write(variable, value.dtype() == v.dtype ? value.clone() : value.cast(v.dtype));
  if (variable == impl_->setup.graphs().iteration_variable()) {
    impl_->set_iterations(static_cast<int64_t>(value.at(0)));
  } else if (v.role == VariableRole::kWeight) {
    impl_->restart_copies(variable);
  }
}

void Engine::finalize_weights() {
  if (impl_->iterations_done() == 0) {
    return;
  }
  for (const auto& [weight, average] : impl_->averages()) {
    impl_->store.write(weight, impl_->store.read(average));
  }
}

void Engine::snapshot_weights(const std::string& owner) {
  const int first = impl_->setup.graphs().kept_variable(owner);
  for (int w = 0; w < static_cast<int>(impl_->setup.model().weights().size()); ++w) {
    impl_->store.write(first + w, impl_->store.read(w));
  }
}

void Engine::restore_snapshot(const std::string& owner) {
  const int first = impl_->setup.graphs().kept_variable(owner);
  for (int w = 0; w < static_cast<int>(impl_->setup.model().weights().size()); ++w) {
    impl_->store.write(w, impl_->store.read(first + w));
  }
}

void Engine::swap_averages() {
  for (const auto& [weight, average] : impl_->averages()) {
    HostTensor before = impl_->store.read(weight);
    impl_->store.write(weight, impl_->store.read(average));
    impl_->store.write(average, before);
  }
}

void Engine::reset_metrics() {
  impl_->reset_metrics();
}

Logs Engine::evaluate_logs() const {
  // Keras' order: the loss, the compiled metrics as declared, then per-output losses.
  Logs first, losses;
  for (const TrackedMetric& tracked : impl_->setup.graphs().metrics()) {
    if (tracked.only_training && impl_->store.read(tracked.states.back()).at(0) == 0) {
      continue;  // no step that trains since the last reset
    }
    const bool is_part =
        tracked.output == kNone && tracked.metric.name != "loss" && !tracked.only_training;
    (is_part ? losses : first).emplace_back(tracked.metric.name, impl_->metric_value(tracked));
  }
  first.insert(first.end(), losses.begin(), losses.end());
  return first;
}

LogLists Engine::log_lists() const {
  LogLists out;
  for (const TrackedMetric& tracked : impl_->setup.graphs().metrics()) {
    if (std::vector<double> values = impl_->metric_values(tracked); values.size() > 1) {
      out[tracked.metric.name] = std::move(values);
    }
  }
  return out;
}

Logs Engine::logs() const {
  Logs out = evaluate_logs();
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace meshtrain
