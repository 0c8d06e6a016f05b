// The programs of an Engine: one for each kind of step and batch size.
#include <algorithm>
#include <limits>

#include "base/memory.h"
#include "engine/engine_impl.h"
#include "engine/host_memory.h"
#include "passes/row_fusion.h"

namespace meshtrain {

int64_t Engine::Impl::free_memory() const {
  const int on_host = processes.group == nullptr ? 1 : processes.group->local_size();
  return available_memory() / std::max(on_host, 1);
}

std::shared_ptr<gpu::Device> Engine::Impl::checked(
    const std::shared_ptr<gpu::Device>& opened) const {
  if (opened != nullptr) {
    check_variables_fit(setup, *opened);
  } else {
    check_host_variables(setup, free_memory());
  }
  return opened;
}

Executor& Engine::Impl::compiled(StepKind kind, int64_t batch) {
  const auto made = programs.find({kind, batch});
  if (made != programs.end())
    return *made->second;
  make_programs({{kind, batch}}, [&](int64_t most) {
    return std::vector<StepBatch>{{kind, std::min(batch, most)}};
  });
  return *programs.at({kind, batch});
}

void Engine::Impl::make_room(const std::vector<StepBatch>& steps, const std::vector<Program>& added,
                             const StepsUpTo& steps_up_to) {
  StepMemory& memory = store.step_memory();
  const std::vector<int64_t> blocks = memory.block_bytes();
  if (device != nullptr) {
    memory.extend(check_steps_fit(setup, steps, added, blocks, steps_up_to, *device));
  } else {
    check_host_steps(setup, steps, added,
                     blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end()),
                     free_memory());
  }
}

void Engine::Impl::make_programs(const std::vector<StepBatch>& steps,
                                 const StepsUpTo& steps_up_to) {
  std::vector<StepBatch> missing;
  std::vector<Program> made;
  for (const StepBatch& step : steps) {
    if (programs.count({step.kind, step.batch}) != 0)
      continue;
    Compiled compiled = setup.compile(step.kind, step.batch);
    check_same_program(
        processes, compiled.graph, setup.mesh(),
        fmt::format("the {} step of {} samples", step_kind_name(step.kind), step.batch));
    fuse_rows(compiled.program, device != nullptr ? RowTarget::kGpu : RowTarget::kCpu);
    missing.push_back(step);
    made.push_back(std::move(compiled.program));
  }
  join_groups(device.get(), processes, made, groups);
  if (!missing.empty())
    make_room(missing, made, steps_up_to);
  std::vector<std::unique_ptr<Executor>> executors;
  for (size_t i = 0; i < missing.size(); ++i) {
    executors.push_back(std::make_unique<Executor>(std::move(made[i]), workers, store,
                                                   /*is_prepared_later=*/true));
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    executors[i]->prepare();
    programs[{missing[i].kind, missing[i].batch}] = std::move(executors[i]);
  }
}

void Engine::prepare_run(const RunSamples& samples) {
  if (impl_->device == nullptr)
    return;
  const auto steps_up_to = [&](int64_t most) {
    return steps_of_run(impl_->setup.config(), samples, most);
  };
  impl_->make_programs(steps_up_to(std::numeric_limits<int64_t>::max()), steps_up_to);
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
    const auto found = impl_->programs.find({step.kind, step.batch});
    if (found != impl_->programs.end()) {
      Executor& executor = *found->second;
      executor.begin_compile(impl_->feeder.tables(executor, dataset));
    }
  }
}

LocalRows Engine::local_rows(bool training, int64_t batch_size) const {
  int64_t first = batch_size, end = 0;
  for (const auto& [key, executor] : impl_->programs) {
    const bool trains = key.first == StepKind::kTrain || key.first == StepKind::kAccumulate;
    const auto& inputs = executor->program().inputs;
    for (size_t i = 0; trains == training && key.second == batch_size && i < inputs.size(); ++i) {
      if (inputs[i].name == kLearningRateInput) {
        continue;
      }
      const Executor::RowRange range = executor->input_rows(static_cast<int>(i));
      first = std::min(first, range.first);
      end = std::max(end, range.first + range.count);
    }
  }
  return end == 0 ? LocalRows{0, batch_size} : LocalRows{first, end - first};
}

const Program& Engine::train_program(int64_t batch_size) {
  return impl_->compiled(StepKind::kTrain, batch_size).program();
}

}  // namespace meshtrain
