// The parts of an Engine. engine.cc runs steps, engine_programs.cc compiles them, and
// engine_variables.cc reads and writes what they keep.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/device_memory.h"
#include "engine/engine.h"
#include "engine/feeder.h"
#include "exec/executor.h"
#include "exec/join_devices.h"

namespace meshtrain {

struct Engine::Impl {
  Impl(const Config& config, const DataSpec& spec, const EngineOptions& options);

  // The program for one kind of step and batch size; compiles it where that has not been done.
  Executor& compiled(StepKind kind, int64_t batch);
  // Compiles the missing programs of these steps; on a GPU none when not all fit. `steps_up_to`:
  // the steps with smaller batches, for the advice.
  void make_programs(const std::vector<StepBatch>& steps, const StepsUpTo& steps_up_to);
  // Takes memory for programs that are made, beside those that are there; throws ConfigError when
  // they do not fit.
  void make_room(const std::vector<StepBatch>& steps, const std::vector<Program>& added,
                 const StepsUpTo& steps_up_to);
  // The device that was opened, once it is known that the variables fit there.
  std::shared_ptr<gpu::Device> checked(const std::shared_ptr<gpu::Device>& opened) const;
  // Bytes that this process may take of its host's memory; 0 when unknown.
  int64_t free_memory() const;

  Executor& run(StepKind kind, const Batch& batch);
  // Runs training steps; those behind the warm-up are measured until the profile is whole.
  void run_steps(Executor& executor, int count);
  bool is_profiled() const { return static_cast<int64_t>(profile.steps.size()) >= profile_steps; }
  StepKind next_kind() const;
  // Of each member of the optimizer, the first one's first. A rate that was set scales all.
  std::vector<double> learning_rates(int64_t iteration) const;
  double shown_loss() const;
  // Whether the host must know which of the steps so far a loss scale skipped, and are no
  // iterations, before it can begin the next one.
  bool needs_iterations() const;
  // Waits for the steps that were begun where a loss scale may have skipped some of them.
  int64_t iterations_done();
  void set_iterations(int64_t done);

  void initialize();
  // Slots that start as a copy of their weight, or at a constant.
  void reset_slots();
  void reset_metrics();
  // The variable at a path; throws E410.
  int find(std::string_view path) const;
  // Slots that start as a copy of the weight follow a weight written before the first step.
  void restart_copies(int weight);
  // Weights and their averages, as variables.
  std::vector<std::pair<int, int>> averages() const;
  std::vector<double> metric_values(const TrackedMetric& tracked) const;
  // The mean where there are several, as Keras' progress bar shows it.
  double metric_value(const TrackedMetric& tracked) const;

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
  std::map<std::pair<StepKind, int64_t>, std::unique_ptr<Executor>> programs;
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

}  // namespace meshtrain
