// Training with checkpoints on several processes, played by threads.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/host.h"
#include "comm/socket.h"
#include "exec/executor.h"
#include "support/engine_case.h"
#include "support/thread_group.h"
#include "train/checkpointer.h"
#include "train/trainer.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr const char* kRunModel = R"(
seed: 11
distribution: {device_mesh: {shape: [2], axis_names: [data]}, reductions: fixed}
data: {train: {source: random, samples: 64, shape: [6], classes: 4, seed: 3}}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 16, activation: relu}
    - Dense: {name: d2, units: 4}
compile:
  optimizer: {Adam: {learning_rate: 0.01}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 8, epochs: 3}
run: {check_replicas: 4}
checkpoint: {every: 6 steps}
)";

// Flips a bit of the first weight after a step.
struct Fault : Hook {
  explicit Fault(Engine& the_engine) : engine(the_engine) {}
  void on_train_step(const TrainPosition& done, const StepRunner&) override {
    if (done.epoch == 0 && done.batch == at) {
      engine.store().data(0)[2] ^= std::byte{16};
    }
  }
  Engine& engine;
  int64_t at = 0;  // 0: never
};

// One process of a run in `folder`; a bit of rank 1's copy flips after step `fault`.
void train(const std::string& folder, const std::vector<std::string>& overrides,
           const std::shared_ptr<ThreadGroup>& group, int64_t fault) {
  const Config config = config_from(kRunModel, overrides);
  const Dataset data = load_dataset(*config.data.train, config.data);
  EngineOptions engine_options;
  engine_options.num_workers = 1;
  engine_options.processes.group = group;
  Engine engine(config, data_spec(data), engine_options);
  Coordinator coordinator(engine.processes(), steady_seconds);
  CheckpointerOptions options;
  options.run_dir = folder;
  options.notes.written_by = "test";
  options.now = steady_seconds;
  options.warn = options.inform = options.report = [](const std::string&) {};
  options.coordinator = &coordinator;
  Checkpointer checkpointer(engine, config, options);
  Trainer trainer(engine, config, steady_seconds);
  Fault flip(engine);
  flip.at = group->rank() == 1 ? fault : 0;
  trainer.add_hook(flip);
  trainer.set_coordinator(coordinator);
  trainer.add_saver(checkpointer);
  trainer.fit(data, nullptr);
}

// What each of two processes ended with.
std::vector<Caught> train_two(const TempFolder& folder, const std::vector<std::string>& overrides,
                              int64_t fault) {
  std::filesystem::create_directory(folder.file("checkpoints"));
  std::vector<Caught> out(2);
  run_as_processes(2, [&](const std::shared_ptr<ThreadGroup>& group) {
    out[static_cast<size_t>(group->rank())] =
        caught([&] { train(folder.path(), overrides, group, fault); });
  });
  return out;
}

TEST_CASE("a bit that flips in the copy of one process is found at the next comparison") {
  const TempFolder folder;
  for (const Caught& error : train_two(folder, {"checkpoint.every=never"}, 5)) {
    CHECK(error.code == "E510");
    CHECK(error.exit_code == static_cast<int>(ExitCode::kDiverged));
    CHECK(error.says("`d1/kernel` differs between rank 0 and rank 1, found after step 8"));
    CHECK(error.says("at step 4 they were equal"));
  }
}

TEST_CASE("or at the next save which is not committed") {
  const TempFolder folder;
  for (const Caught& error : train_two(folder, {"run.check_replicas=0"}, 7)) {
    CHECK(error.code == "E510");
    CHECK(error.says("found after step 12"));
    CHECK(error.says("the last good checkpoint is 000006"));
  }
  CHECK(checkpoint_steps(folder.file("checkpoints")) == std::vector<int64_t>{6});
}

TEST_CASE("or never when nobody looks") {
  const TempFolder folder;
  for (const Caught& error :
       train_two(folder, {"checkpoint.every=never", "run.check_replicas=0"}, 21)) {
    CHECK(error.code.empty());
  }
}

}  // namespace
