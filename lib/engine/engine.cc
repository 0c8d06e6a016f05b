#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/memory.h"
#include "base/text.h"
#include "engine/device_memory.h"
#include "engine/feeder.h"
#include "engine/host_memory.h"
#include "exec/executor.h"
#include "exec/join_devices.h"
#include "passes/row_fusion.h"

namespace meshtrain {
namespace {

gpu::DeviceOptions device_options(const Setup& setup, const EngineOptions& options,
                                  Diagnostics& warnings) {
  return {.use_graph = options.use_cuda_graph,
          .use_tf32 = setup.config().matmul_precision != MatmulPrecision::kHighest,
          .cache_dir = setup.distribution().devices.is_gpu ? gpu_cache_folder(&warnings) : "",
          .measure = options.processes.size() == 1 && !setup.fixed_reductions()};
}

}  // namespace

struct Engine::Impl {
  Impl(const Config& config, const DataSpec& spec, const EngineOptions& options)
      : processes(options.processes),
        setup(config, &spec, options.dump_ir, processes.size(), processes.rank(), options.decode),
        decode(options.decode),
        warnings(setup.warnings()),
        device(open_device(setup.distribution().devices, device_options(setup, options, warnings),
                           processes)),
        abort_hook(join_devices(device, processes)),
        workers(device == nullptr ? make_worker_pool(options.num_workers) : nullptr),
        store(setup.part(), setup.variables(), checked(device), processes),
        feeder(device),
        profile_steps(options.profile_steps) {
    initialize();
  }

  std::shared_ptr<gpu::Device> checked(const std::shared_ptr<gpu::Device>& opened) const {
    if (opened != nullptr) {
      check_variables_fit(setup, *opened);
    } else {
      check_host_variables(setup, free_memory());
    }
    return opened;
  }

  // Bytes that this process may take of its host's memory; 0 when unknown.
  int64_t free_memory() const {
    const int on_host = processes.group == nullptr ? 1 : processes.group->local_size();
    return available_memory() / std::max(on_host, 1);
  }

  // A program for one kind of step and batch size.
  struct Compiled {
    Graph graph;
    std::unique_ptr<Executor> executor;
  };

  void initialize() {
    const auto& weights = setup.model().weights();
    for (size_t w = 0; w < weights.size(); ++w) {
      const Weight& weight = *weights[w];
      store.write(
          static_cast<int>(w),
          weight.initializer(weight.shape, weight.dtype,
                             static_cast<uint64_t>(setup.config().seed.value), weight.path));
    }
    reset_slots();
    reset_metrics();
  }

  // Slots that start as a copy of their weight, or at a constant.
  void reset_slots() {
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

  void reset_metrics() {
    for (const TrackedMetric& tracked : setup.graphs().metrics()) {
      for (const int state : tracked.states) {
        store.fill(state, 0);
      }
    }
  }

  Compiled& compiled(StepKind kind, int64_t batch) {
    const auto made = programs.find({kind, batch});
    if (made != programs.end())
      return *made->second;
    make_programs({{kind, batch}}, [&](int64_t most) {
      return std::vector<StepBatch>{{kind, std::min(batch, most)}};
    });
    return *programs.at({kind, batch});
  }

  // Compiles the missing programs of these steps; on a GPU none when not all fit. `steps_up_to`:
  // the steps with smaller batches, for the advice.
  void make_programs(const std::vector<StepBatch>& steps, const StepsUpTo& steps_up_to) {
    std::vector<StepBatch> missing;
    std::vector<Graph> graphs;
    std::vector<Program> made;
    for (const StepBatch& step : steps) {
      if (programs.count({step.kind, step.batch}) != 0)
        continue;
      meshtrain::Compiled compiled = setup.compile(step.kind, step.batch);
      check_same_program(
          processes, compiled.graph, setup.mesh(),
          fmt::format("the {} step of {} samples", step_kind_name(step.kind), step.batch));
      if (device != nullptr)
        fuse_rows(compiled.program);
      missing.push_back(step);
      graphs.push_back(std::move(compiled.graph));
      made.push_back(std::move(compiled.program));
    }
    join_groups(device.get(), processes, made, groups);
    if (device != nullptr && !missing.empty()) {
      StepMemory& memory = store.step_memory();
      memory.extend(
          check_steps_fit(setup, missing, made, memory.block_bytes(), steps_up_to, *device));
    }
    if (device == nullptr && !missing.empty()) {
      const std::vector<int64_t> blocks = store.step_memory().block_bytes();
      check_host_steps(setup, missing, made,
                       blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end()),
                       free_memory());
    }
    std::vector<std::unique_ptr<Compiled>> compiled;
    for (size_t i = 0; i < missing.size(); ++i) {
      compiled.push_back(std::make_unique<Compiled>());
      compiled.back()->graph = std::move(graphs[i]);
      compiled.back()->executor = std::make_unique<Executor>(std::move(made[i]), workers, store,
                                                             /*is_prepared_later=*/true);
    }
    for (size_t i = 0; i < missing.size(); ++i) {
      compiled[i]->executor->prepare();
      programs[{missing[i].kind, missing[i].batch}] = std::move(compiled[i]);
    }
  }

  Executor& run(StepKind kind, const Batch& batch) {
    Executor& executor = *compiled(kind, static_cast<int64_t>(batch.rows.size())).executor;
    feeder.feed(executor, batch, learning_rate(iterations), 0);
    executor.run();
    return executor;
  }

  // Runs training steps; those behind the warm-up are measured until the profile is whole.
  void run_steps(Executor& executor, int count) {
    const bool measures = !is_profiled() && steps_begun >= kProfileWarmUp;
    steps_begun += count;
    if (!measures) {
      executor.run(count);
      return;
    }
    executor.set_profile(&profile);
    executor.run(count);
    executor.set_profile(nullptr);
    if (std::find(profiled.begin(), profiled.end(), &executor.program()) == profiled.end())
      profiled.push_back(&executor.program());
  }

  bool is_profiled() const { return static_cast<int64_t>(profile.steps.size()) >= profile_steps; }

  // Whether the host must know which of the steps so far a loss scale skipped, and are no
  // iterations, before it can begin the next one.
  bool needs_iterations() const {
    const Optimizer& optimizer = setup.optimizer();
    return optimizer.scales_loss() &&
           (optimizer.accumulation_steps() > 1 || (fixed_rate < 0 && optimizer.has_schedule()));
  }

  // Waits for the steps that were begun where a loss scale may have skipped some of them.
  int64_t iterations_done() {
    if (!knows_iterations) {
      iterations = static_cast<int64_t>(store.read(setup.graphs().iteration_variable()).at(0));
      knows_iterations = true;
    }
    return iterations;
  }

  void set_iterations(int64_t done) {
    iterations = done;
    knows_iterations = true;
  }

  double shown_loss() const {
    if (newest.executor == nullptr) {
      return 0;
    }
    const int step = newest.steps - 1 - steps_ago;
    if (step >= 0) {
      return newest.executor->output_scalar(0, step);
    }
    const int runs_ago = before.executor == newest.executor ? 1 : 0;
    return before.executor->output_scalar(0, before.steps + step, runs_ago);
  }

  StepKind next_kind() const {
    const bool apply_now = (iterations + 1) % setup.optimizer().accumulation_steps() == 0;
    return apply_now ? StepKind::kTrain : StepKind::kAccumulate;
  }

  double learning_rate(int64_t iteration) const {
    const double rate = fixed_rate >= 0 ? fixed_rate : setup.optimizer().learning_rate(iteration);
    return setup.dtype() == DType::kFloat64 ? rate : static_cast<double>(static_cast<float>(rate));
  }

  // Weights and their averages, as variables.
  std::vector<std::pair<int, int>> averages() const {
    const StepGraphs& graphs = setup.graphs();
    std::vector<std::pair<int, int>> out;
    for (size_t w = 0; setup.optimizer().uses_ema() && w < setup.model().weights().size(); ++w) {
      for (size_t s = 0; s < graphs.slots(w).size(); ++s) {
        if (graphs.slots(w)[s].name == "average") {
          out.emplace_back(static_cast<int>(w), graphs.slot_variable(w, s));
        }
      }
    }
    return out;
  }

  std::vector<double> metric_values(const TrackedMetric& tracked) const {
    if (newest.executor != nullptr && processes.monitor != nullptr) {
      newest.executor->output(0, newest.steps - 1);  // says for how many steps this waits
    }
    std::vector<HostTensor> state;
    for (const int variable : tracked.states) {
      state.push_back(store.read(variable));
    }
    return tracked.metric.result(state);
  }

  // The mean where there are several, as Keras' progress bar shows it.
  double metric_value(const TrackedMetric& tracked) const {
    const std::vector<double> values = metric_values(tracked);
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  int find(std::string_view path) const {
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

  Processes processes;
  Setup setup;
  DecodeOptions decode;
  Diagnostics warnings;
  std::shared_ptr<gpu::Device> device;  // null: the processor
  AbortHook abort_hook;
  std::shared_ptr<WorkerPool> workers;
  VariableStore store;
  Feeder feeder;
  DeviceGroups groups;
  std::map<std::pair<StepKind, int64_t>, std::unique_ptr<Compiled>> programs;
  int64_t profile_steps = 0, steps_begun = 0;
  StepProfile profile;
  std::vector<const Program*> profiled;  // by the steps of the profile
  int64_t iterations = 0;
  bool knows_iterations = true;  // false: some of them may have been skipped
  double fixed_rate = -1;        // set by set_learning_rate
  // The last two train_steps: their losses are read when they are asked for.
  struct TrainRun {
    Executor* executor = nullptr;
    int steps = 0;
  };
  TrainRun newest, before;
  int steps_ago = 0;  // of the step that is shown
};

Engine::Engine(const Config& config, const DataSpec& spec, EngineOptions options)
    : impl_(std::make_unique<Impl>(config, spec, options)) {}
Engine::~Engine() = default;

const Setup& Engine::setup() const {
  return impl_->setup;
}
const Model& Engine::model() const {
  return impl_->setup.model();
}
const DeviceMesh& Engine::mesh() const {
  return impl_->setup.mesh();
}
const Diagnostics& Engine::warnings() const {
  return impl_->warnings;
}

const Processes& Engine::processes() const {
  return impl_->processes;
}

void Engine::train_step(const Batch& batch) {
  train_steps(1, [&] { return batch; });
}

// Steps of one program: those that only accumulate gradients have one of their own.
int64_t Engine::steps_at_once(int64_t batch_size) {
  if (impl_->device == nullptr || impl_->needs_iterations() || !impl_->is_profiled()) {
    return 1;
  }
  const int64_t period = impl_->setup.optimizer().accumulation_steps();
  const int most = impl_->compiled(impl_->next_kind(), batch_size).executor->max_steps();
  const int64_t to_accumulate = period - 1 - impl_->iterations % period;
  return period == 1 ? most : std::clamp<int64_t>(to_accumulate, 1, most);
}

bool Engine::is_async() const {
  return impl_->device != nullptr;
}

void Engine::train_steps(int64_t count, const std::function<Batch()>& next) {
  if (impl_->needs_iterations()) {
    impl_->iterations_done();
  }
  const StepKind kind = impl_->next_kind();
  Executor* executor = nullptr;
  for (int64_t step = 0; step < count; ++step) {
    const Batch batch = next();
    if (executor == nullptr) {
      executor = impl_->compiled(kind, static_cast<int64_t>(batch.rows.size())).executor.get();
    }
    impl_->feeder.feed(*executor, batch, impl_->learning_rate(impl_->iterations + step),
                       static_cast<int>(step));
  }
  impl_->run_steps(*executor, static_cast<int>(count));
  impl_->before = std::exchange(impl_->newest, {executor, static_cast<int>(count)});
  impl_->steps_ago = 0;
  impl_->iterations += count;
  impl_->knows_iterations = !impl_->setup.optimizer().scales_loss();
}

void Engine::select_step(int64_t steps_ago) {
  impl_->steps_ago = static_cast<int>(steps_ago);
}

LocalRows Engine::local_rows(bool training, int64_t batch_size) const {
  int64_t first = batch_size, end = 0;
  for (const auto& [key, compiled] : impl_->programs) {
    const bool trains = key.first == StepKind::kTrain || key.first == StepKind::kAccumulate;
    const auto& inputs = compiled->executor->program().inputs;
    for (size_t i = 0; trains == training && key.second == batch_size && i < inputs.size(); ++i) {
      if (inputs[i].name == kLearningRateInput) {
        continue;
      }
      const Executor::RowRange range = compiled->executor->input_rows(static_cast<int>(i));
      first = std::min(first, range.first);
      end = std::max(end, range.first + range.count);
    }
  }
  return end == 0 ? LocalRows{0, batch_size} : LocalRows{first, end - first};
}

bool Engine::cache_on_device(const Dataset& dataset) {
  return impl_->feeder.cache_on_device(dataset);
}

void Engine::begin_compile(const Dataset& dataset, bool training) {
  if (impl_->device == nullptr) {
    return;
  }
  const int64_t samples = dataset.num_samples;
  const RunSamples of_run =
      training ? RunSamples{.train = samples} : RunSamples{.validation = samples};
  for (const StepBatch& step :
       steps_of_run(impl_->setup.config(), of_run, std::numeric_limits<int64_t>::max())) {
    const auto compiled = impl_->programs.find({step.kind, step.batch});
    if (compiled != impl_->programs.end()) {
      Executor& executor = *compiled->second->executor;
      executor.begin_compile(impl_->feeder.tables(executor, dataset));
    }
  }
}

void Engine::test_step(const Batch& batch) {
  impl_->run(StepKind::kTest, batch);
}

namespace {

std::vector<HostTensor> outputs_of(const Executor& executor) {
  std::vector<HostTensor> outputs;
  for (size_t o = 0; o < executor.program().outputs.size(); ++o) {
    outputs.push_back(executor.output(static_cast<int>(o)));
  }
  return outputs;
}

}  // namespace

std::vector<HostTensor> Engine::predict_step(const Batch& batch) {
  return outputs_of(impl_->run(StepKind::kPredict, batch));
}

std::vector<HostTensor> Engine::decode_step(std::span<const int32_t> ids, int64_t position,
                                            std::span<const int32_t> rows) {
  const int64_t steps = static_cast<int64_t>(ids.size()) / impl_->decode.rows;
  Executor& executor = *impl_->compiled(StepKind::kDecode, steps).executor;
  const int32_t first = static_cast<int32_t>(position);
  for (int i = 0; i < static_cast<int>(executor.program().inputs.size()); ++i) {
    const std::string& name = executor.program().inputs[static_cast<size_t>(i)].name;
    const Executor::RowRange own = executor.input_rows(i);
    std::span<const int32_t> values = {&first, 1};
    if (name != kPositionInput) {
      const bool is_ids = name != kRowsInput;
      values = (is_ids ? ids : rows)
                   .subspan(static_cast<size_t>(own.first * (is_ids ? steps : 1)),
                            static_cast<size_t>(own.count * (is_ids ? steps : 1)));
    }
    executor.set_input(i, values.data(), values.size_bytes());
  }
  executor.run();
  return outputs_of(executor);
}

double Engine::last_loss() const {
  return impl_->shown_loss();
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
  if (v.shape != value.shape()) {
    throw ConfigError("E410", {},
                      fmt::format("`{}` has shape {}, the given tensor {}", path,
                                  shape_string(v.shape), shape_string(value.shape())));
  }
  impl_->store.write(variable, value.dtype() == v.dtype ? value.clone() : value.cast(v.dtype));
  if (variable == impl_->setup.graphs().iteration_variable()) {
    impl_->set_iterations(static_cast<int64_t>(value.at(0)));
  } else if (v.role == VariableRole::kWeight) {
    restart_copies(variable);
  }
}

// Slots that start as a copy of the weight follow a weight written before the first step.
void Engine::restart_copies(int weight) {
  const StepGraphs& graphs = impl_->setup.graphs();
  for (size_t s = 0; s < graphs.slots(weight).size() && impl_->iterations_done() == 0; ++s) {
    if (graphs.slots(weight)[s].copy_weight) {
      impl_->store.write(graphs.slot_variable(weight, s), impl_->store.read(weight));
    }
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

double Engine::learning_rate() const {
  return impl_->learning_rate(impl_->iterations_done());
}
void Engine::set_learning_rate(double rate) {
  impl_->fixed_rate = rate;
}
int64_t Engine::iterations() const {
  return impl_->iterations_done();
}

VariableStore& Engine::store() {
  return impl_->store;
}
double Engine::fixed_learning_rate() const {
  return impl_->fixed_rate;
}
void Engine::restore_counters(int64_t iterations, double fixed_rate) {
  impl_->set_iterations(iterations);
  impl_->fixed_rate = fixed_rate;
}

void Engine::prepare_run(const RunSamples& samples) {
  if (impl_->device == nullptr)
    return;
  const auto steps_up_to = [&](int64_t most) {
    return steps_of_run(impl_->setup.config(), samples, most);
  };
  impl_->make_programs(steps_up_to(std::numeric_limits<int64_t>::max()), steps_up_to);
}

const StepProfile* Engine::profile() const {
  return impl_->profile_steps == 0 ? nullptr : &impl_->profile;
}
bool Engine::has_whole_profile() const {
  return impl_->is_profiled();
}
int64_t Engine::device_memory_used() const {
  if (impl_->device == nullptr) {
    return 0;
  }
  const gpu::DeviceInfo info = impl_->device->info();
  return info.total_bytes - info.free_bytes;
}
std::vector<const Program*> Engine::profiled_programs() const {
  return impl_->profiled;
}

const Program& Engine::train_program(int64_t batch_size) {
  return impl_->compiled(StepKind::kTrain, batch_size).executor->program();
}
const Graph& Engine::train_graph(int64_t batch_size) {
  return impl_->compiled(StepKind::kTrain, batch_size).graph;
}

}  // namespace meshtrain
