#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"

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

Engine::Impl::Impl(const Config& config, const DataSpec& spec, const EngineOptions& options)
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

Executor& Engine::Impl::run(StepKind kind, const Batch& batch) {
  Executor& executor = compiled(kind, static_cast<int64_t>(batch.rows.size()));
  feeder.feed(executor, batch, learning_rates(iterations), 0);
  executor.run();
  return executor;
}

void Engine::Impl::run_steps(Executor& executor, int count) {
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

bool Engine::Impl::needs_iterations() const {
  const Optimizer& optimizer = setup.optimizer();
  return optimizer.scales_loss() &&
         (optimizer.accumulation_steps() > 1 || (fixed_rate < 0 && optimizer.has_schedule()));
}

int64_t Engine::Impl::iterations_done() {
  if (!knows_iterations) {
    iterations = static_cast<int64_t>(store.read(setup.graphs().iteration_variable()).at(0));
    knows_iterations = true;
  }
  return iterations;
}

void Engine::Impl::set_iterations(int64_t done) {
  iterations = done;
  knows_iterations = true;
}

double Engine::Impl::shown_loss() const {
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

StepKind Engine::Impl::next_kind() const {
  const bool apply_now = (iterations + 1) % setup.optimizer().accumulation_steps() == 0;
  return apply_now ? StepKind::kTrain : StepKind::kAccumulate;
}

std::vector<double> Engine::Impl::learning_rates(int64_t iteration) const {
  const Optimizer& optimizer = setup.optimizer();
  const double first = optimizer.learning_rate(iteration);
  std::vector<double> rates;
  for (size_t member = 0; member < optimizer.num_members(); ++member) {
    double rate = optimizer.learning_rate(iteration, member);
    if (fixed_rate >= 0) {
      rate = member == 0 ? fixed_rate : rate * (first > 0 ? fixed_rate / first : 1);
    }
    const bool is_double = setup.dtype() == DType::kFloat64;
    rates.push_back(is_double ? rate : static_cast<double>(static_cast<float>(rate)));
  }
  return rates;
}

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
  const int most = impl_->compiled(impl_->next_kind(), batch_size).max_steps();
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
      executor = &impl_->compiled(kind, static_cast<int64_t>(batch.rows.size()));
    }
    impl_->feeder.feed(*executor, batch, impl_->learning_rates(impl_->iterations + step),
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

bool Engine::cache_on_device(const Dataset& dataset) {
  return impl_->feeder.cache_on_device(dataset);
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
  Executor& executor = impl_->compiled(StepKind::kDecode, steps);
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

double Engine::learning_rate() const {
  return impl_->learning_rates(impl_->iterations_done())[0];
}

void Engine::set_learning_rate(double rate) {
  impl_->fixed_rate = rate;
}

std::optional<double> Engine::scheduled_rate() const {
  const bool is_scheduled = impl_->fixed_rate < 0 && impl_->setup.optimizer().has_schedule();
  return is_scheduled ? std::optional(learning_rate()) : std::nullopt;
}

int64_t Engine::iterations() const {
  return impl_->iterations_done();
}

double Engine::fixed_learning_rate() const {
  return impl_->fixed_rate;
}

void Engine::restore_counters(int64_t iterations, double fixed_rate) {
  impl_->set_iterations(iterations);
  impl_->fixed_rate = fixed_rate;
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

}  // namespace meshtrain
