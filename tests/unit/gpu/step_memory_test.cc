// Programs of one model on the device: they share memory, and what they take is known before.
#include <doctest/doctest.h>

#include "engine/run_steps.h"
#include "exec/executor.h"
#include "exec/gpu_memory.h"
#include "gpu_device.h"
#include "passes/row_fusion.h"
#include "training.h"

namespace meshtrain::test {
namespace {

constexpr const char* kModel = R"(
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Conv2D: {filters: 4, kernel_size: 3, strides: 2}
    - Flatten
    - Dense: {name: d1, units: 64, activation: relu}
    - Dropout: 0.3
    - Dense: {name: d2, units: 10}
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16, validation_batch_size: 24}
distribution: {device_mesh: {shape: [2], axis_names: [data]}}
seed: 5
)";

constexpr RunSamples kSamples{40, 60, 0};

struct Case {
  Config config;
  Dataset data = pictures(60);
  Engine engine;
  explicit Case(const std::string& devices)
      : config(config_from(
            kModel, {"matmul_precision=highest", "distribution.device_mesh.devices=" + devices})),
        engine(config, data_spec(data)) {}
};

// Some of every step, whose memory others use between.
std::vector<double> results_of(Case& on) {
  std::vector<double> out;
  const auto rows = [](int64_t count) { return rows_of_step(0, count, 60); };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const int64_t batch : {16, 16, 8}) {
      on.engine.train_step({&on.data, rows(batch)});
      out.push_back(on.engine.last_loss());
    }
    on.engine.reset_metrics();
    for (const int64_t batch : {24, 24, 12})
      on.engine.test_step({&on.data, rows(batch)});
    for (const auto& [name, value] : on.engine.logs())
      out.push_back(value);
    out.push_back(on.engine.last_loss());  // of the last training step
    const auto predictions = on.engine.predict_step({&on.data, rows(30)});
    for (int64_t i = 0; i < predictions[0].size(); ++i)
      out.push_back(predictions[0].at(i));
  }
  return out;
}

TEST_CASE("steps of all kinds and batches take turns in the same memory") {
  if (test_runtime() == nullptr)
    return;
  Case cpu("cpu:2"), gpu("gpu:0x2");
  gpu.engine.prepare_run(kSamples);
  StepMemory& memory = gpu.engine.store().step_memory();
  const std::vector<int64_t> before = memory.block_bytes();
  REQUIRE(before.size() >= 2);
  const std::vector<double> want = results_of(cpu), got = results_of(gpu);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(2e-4));
  }
  // One arena for all of them.
  CHECK(memory.block_bytes()[0] == before[0]);
  const int64_t arena = gpu.engine.train_program(16).arena_bytes;
  CHECK(before[0] < arena + 256);
  for (size_t b = 1; b < memory.block_bytes().size(); ++b)
    CHECK(memory.block_bytes()[b] < arena);
}

TEST_CASE("what programs take of a GPU is known before it is taken") {
  if (test_runtime() == nullptr)
    return;
  Case on("gpu:0x2");
  gpu::Device& device = *on.engine.store().device();
  const int64_t free_before = device.info().free_bytes;
  StepMemory planned = imagined_step_memory();
  int64_t own = 0;
  for (const StepBatch& step : steps_of_run(on.config, kSamples, 1000)) {
    Program program = on.engine.setup().compile(step.kind, step.batch).program;
    fuse_rows(program, RowTarget::kGpu);
    own += gpu_own_bytes(program);
    take_gpu_memory(program, planned, true);
  }
  on.engine.prepare_run(kSamples);
  const auto rows = [](int64_t count) { return rows_of_step(0, count, 60); };
  for (const int64_t batch : {16, 8})
    on.engine.train_step({&on.data, rows(batch)});
  for (const int64_t batch : {24, 12})
    on.engine.test_step({&on.data, rows(batch)});
  const std::vector<int64_t> blocks = on.engine.store().step_memory().block_bytes();
  CHECK(blocks == planned.block_bytes());
  int64_t shared = 0;
  for (const int64_t bytes : blocks)
    shared += bytes;
  // A GPU counts pages, libraries and other processes, too.
  if (std::getenv("MESHTRAIN_GPU_LIBRARY") == std::string(MESHTRAIN_EMULATOR))
    CHECK(free_before - device.info().free_bytes == own + shared);
}

TEST_CASE("steps of a run are those of fit and of its validation and of an evaluation" *
          doctest::test_suite("host")) {
  using Steps = std::vector<StepBatch>;
  const Config config = config_from(kModel, {"evaluate.batch_size=100"});
  const auto train = [](int64_t batch) { return StepBatch{StepKind::kTrain, batch}; };
  const auto test = [](int64_t batch) { return StepBatch{StepKind::kTest, batch}; };
  CHECK(steps_of_run(config, {40, 60, 0}, 1000) == Steps{train(16), train(8), test(24), test(12)});
  CHECK(steps_of_run(config, {40, 60, 12}, 10) == Steps{train(10), test(10), test(2)});
  CHECK(steps_of_run(config, {0, 0, 130}, 1000) == Steps{test(100), test(30)});
  CHECK(steps_of_run(config, {9, 0, 0}, 1000) == Steps{train(9)});
  const auto with = [](const std::vector<std::string>& overrides, RunSamples samples) {
    return steps_of_run(config_from(kModel, overrides), samples, 1000);
  };
  CHECK(with({"data.remainder=drop"}, {40, 0, 0}) == Steps{train(16)});
  CHECK(with({"fit.limit_steps=2"}, {40, 0, 0}) == Steps{train(16)});
  CHECK(with({"fit.steps_per_epoch=2"}, {40, 0, 0}) == Steps{train(16)});
  CHECK(with({"fit.steps_per_epoch=2", "fit.epochs=2"}, {40, 0, 0}) == Steps{train(16), train(8)});
  CHECK(with({"fit.validation_steps=2"}, {0, 60, 0}) == Steps{test(24)});
  CHECK(with({"compile.optimizer={SGD: {gradient_accumulation_steps: 2}}"}, {20, 0, 0}) ==
        Steps{train(16), {StepKind::kAccumulate, 16}, train(4), {StepKind::kAccumulate, 4}});
}

}  // namespace
}  // namespace meshtrain::test
