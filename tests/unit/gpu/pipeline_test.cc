// Runs of several steps, two of them in flight: who waits for which, and that training so is
// training step by step.
#include <doctest/doctest.h>

#include <limits>

#include "exec/executor.h"
#include "gpu_device.h"
#include "passes/row_fusion.h"
#include "train/trainer.h"
#include "training.h"

namespace meshtrain::test {
namespace {

// A device that writes down which runs the host began ("run 2") and which it waited for.
class Recorded final : public gpu::Device {
 public:
  explicit Recorded(std::unique_ptr<gpu::Device> inner) : inner_(std::move(inner)) {}

  void start() {
    calls.clear();
    runs_ = 0;
  }
  std::vector<std::string> calls;

  gpu::DeviceInfo info() override { return inner_->info(); }
  std::byte* allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  void free(std::byte* memory) override { inner_->free(memory); }
  std::unique_ptr<gpu::PinnedMemory> allocate_pinned(int64_t bytes) override {
    return inner_->allocate_pinned(bytes);
  }
  std::unique_ptr<gpu::Event> make_event() override {
    return std::make_unique<RecordedEvent>(*this, inner_->make_event());
  }
  void upload(std::byte* to, const void* from, int64_t bytes) override {
    inner_->upload(to, from, bytes);
  }
  void download(void* to, const std::byte* from, int64_t bytes) override {
    inner_->download(to, from, bytes);
  }
  void enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    inner_->enqueue_upload(to, from, bytes);
  }
  void enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) override {
    inner_->enqueue_download(to, from, bytes);
  }
  std::unique_ptr<gpu::Plan> make_plan(const std::vector<gpu::Command>& commands,
                                       const std::vector<gpu::Window>& windows, int first,
                                       int steps) override {
    return std::make_unique<RecordedPlan>(*this,
                                          inner_->make_plan(commands, windows, first, steps));
  }
  void synchronize() override { inner_->synchronize(); }
  void join(const std::string& id, int rank, int size) override { inner_->join(id, rank, size); }
  void abort() override { inner_->abort(); }
  gpu::Traffic traffic() const override { return inner_->traffic(); }

 private:
  class RecordedPlan final : public gpu::Plan {
   public:
    RecordedPlan(Recorded& device, std::unique_ptr<gpu::Plan> inner)
        : device_(device), inner_(std::move(inner)) {}
    void run() override {
      device_.calls.push_back(fmt::format("run {}", ++device_.runs_));
      inner_->run();
    }

   private:
    Recorded& device_;
    std::unique_ptr<gpu::Plan> inner_;
  };
  class RecordedEvent final : public gpu::Event {
   public:
    RecordedEvent(Recorded& device, std::unique_ptr<gpu::Event> inner)
        : device_(device), inner_(std::move(inner)) {}
    void record() override {
      run_ = device_.runs_;
      inner_->record();
    }
    void wait() override {
      if (run_ > 0)
        device_.calls.push_back(fmt::format("wait for {}", run_));
      inner_->wait();
    }

   private:
    Recorded& device_;
    std::unique_ptr<gpu::Event> inner_;
    int run_ = 0;
  };

  std::unique_ptr<gpu::Device> inner_;
  int runs_ = 0;
};

constexpr const char* kSmall = R"(
name: small
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8, activation: tanh}
    - Dense: {name: d2, units: 3, dtype: float32}
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  optimizer: {SGD: {learning_rate: 0.05}}
  metrics: [accuracy]
distribution: {type: DataParallel, device_mesh: {shape: [1], axis_names: [data]}}
data: {shuffle: false}
fit: {batch_size: 2, epochs: 2}
)";

Dataset points(int64_t samples) {
  HostTensor x(DType::kFloat32, {samples, 6});
  HostTensor y(DType::kInt32, {samples});
  for (int64_t s = 0; s < samples; ++s) {
    y.data<int32_t>()[s] = static_cast<int32_t>(s % 3);
    for (int64_t j = 0; j < 6; ++j)
      x.data<float>()[s * 6 + j] = splitmix_signed(71, static_cast<uint64_t>(s * 6 + j));
  }
  return dataset_of(std::move(x), std::move(y));
}

// A train program on the device, or on the processor, fed by hand.
struct Fed {
  Fed(const Setup& setup, const Dataset& the_data, const std::shared_ptr<gpu::Device>& device)
      : data(the_data), store(setup.part(), setup.variables(), device) {
    Program program = setup.compile(StepKind::kTrain, 2).program;
    if (device != nullptr)
      fuse_rows(program, RowTarget::kGpu);
    executor = std::make_unique<Executor>(std::move(program), make_worker_pool(1), store);
    for (size_t w = 0; w < setup.model().weights().size(); ++w) {
      const Weight& weight = *setup.model().weights()[w];
      store.write(static_cast<int>(w),
                  weight.initializer(weight.shape, weight.dtype, 5, weight.path));
    }
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step, ++next) {
      for (int i = 0; i < static_cast<int>(executor->program().inputs.size()); ++i) {
        const std::string& name = executor->program().inputs[static_cast<size_t>(i)].name;
        const float rate = 0.05F;
        if (name == kLearningRateInput) {
          executor->set_input(i, &rate, sizeof(rate), step);
          continue;
        }
        const Dataset::Array& array = name == input_name(0) ? data.inputs[0] : data.targets[0];
        const HostTensor rows = array.rows->read_range(2 * next, 2 * next + 2);
        executor->set_input(i, rows.bytes(), rows.num_bytes(), step);
      }
    }
    executor->run(steps);
  }

  const Dataset& data;
  VariableStore store;
  std::unique_ptr<Executor> executor;
  int64_t next = 0;
};

TEST_CASE("results of a run are read while the next one is in flight") {
  if (test_runtime() == nullptr)
    return;
  const Config config = config_from(kSmall);
  const Dataset data = points(12);
  const DataSpec spec = data_spec(data);
  const Setup setup(config, &spec);
  Fed cpu(setup, data, nullptr);
  std::vector<double> want;
  for (int step = 0; step < 6; ++step) {
    cpu.run(1);
    want.push_back(cpu.executor->output_scalar(0));
  }
  set_emulator_seed(6);
  const auto device = std::make_shared<Recorded>(open_test_device());
  Fed gpu(setup, data, device);
  device->start();
  std::vector<double> got;
  const auto read = [&](int steps, int runs_ago) {
    for (int step = 0; step < steps; ++step)
      got.push_back(gpu.executor->output_scalar(0, step, runs_ago));
  };
  gpu.run(2);
  gpu.run(3);
  read(2, 1);
  gpu.run(1);  // into the slots of the first run
  read(3, 1);
  read(1, 0);
  const std::vector<std::string> calls = {"run 1",      "run 2",     "wait for 1", "wait for 1",
                                          "wait for 1", "run 3",     "wait for 2", "wait for 2",
                                          "wait for 2", "wait for 3"};
  CHECK(device->calls == calls);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
}

uint64_t hash_of_weights(const Engine& engine) {
  uint64_t hash = 0;
  for (const std::string& path : engine.weight_paths()) {
    const HostTensor weight = engine.read_variable(path);
    hash = hash_mix(hash, hash_bytes(weight.bytes(), weight.num_bytes()));
  }
  return hash;
}

// Leaves as many runs in flight as there may be, but looks at the weights after one step.
struct Rarely : Hook {
  Rarely(const Engine& the_engine, int64_t the_step) : engine(the_engine), step(the_step) {}
  int64_t steps_until_sync(const TrainPosition& position) const override {
    return position.step < step ? step - position.step : 1000;
  }
  bool needs_sync(const TrainPosition& position, bool) override { return position.step == step; }
  void on_sync(const TrainPosition& position, bool) override {
    turns.push_back(position.step);
    weights = hash_of_weights(engine);
  }

  const Engine& engine;
  int64_t step;
  std::vector<int64_t> turns;
  uint64_t weights = 0;
};

struct Losses : Hook {
  void on_train_step(const TrainPosition&, const StepRunner& runner) override {
    losses.push_back(runner.last_loss());
  }
  void on_epoch_end(EpochReport& report) override { logs = report.logs; }
  std::vector<double> losses;
  Logs logs;
};

std::vector<std::string> on_gpu(std::vector<std::string> overrides) {
  overrides.emplace_back("distribution.device_mesh.devices=gpu:0");
  overrides.emplace_back("seed=3");
  return overrides;
}

struct Case {
  std::vector<std::string> overrides;
  int64_t at_once;  // steps that may be begun together at the start
  bool skips = false;
};

// The scale is halved until gradients fit float16; steps until then are no iterations.
std::vector<std::string> scaled(const std::string& inner) {
  return {"dtype_policy=mixed_float16",
          fmt::format("compile.optimizer={{LossScaleOptimizer: {{inner_optimizer: {}, "
                      "initial_scale: 1.0e9, dynamic_growth_steps: 20}}}}",
                      inner)};
}

std::vector<Case> cases() {
  const std::string decay =
      "{ExponentialDecay: {initial_learning_rate: 0.05, decay_steps: 10, decay_rate: 0.5}}";
  return {
      {{"compile.optimizer={Adam: {learning_rate: 0.01}}"}, 32},
      {{"compile.optimizer={SGD: {learning_rate: " + decay + "}}"}, 32},
      {scaled("{SGD: {learning_rate: 0.05}}"), 32, true},
      {scaled("{SGD: {learning_rate: " + decay + "}}"), 1, true},
      {{"compile.optimizer={SGD: {learning_rate: 0.05, gradient_accumulation_steps: 4}}"}, 3},
      {scaled("{SGD: {learning_rate: 0.05, gradient_accumulation_steps: 2}}"), 1, true},
  };
}

TEST_CASE("two runs in flight train as single steps do") {
  if (test_runtime() == nullptr)
    return;
  constexpr int64_t kSteps = 70;  // of an epoch: runs of 32, 8 and 30, then of 32, 32 and 6
  constexpr int64_t kTurn = 40;
  const Dataset data = points(2 * kSteps);
  for (const Case& c : cases()) {
    CAPTURE(c.overrides.back());
    set_emulator_seed(8);
    const Config config = config_from(kSmall, on_gpu(c.overrides));
    Engine single(config, data_spec(data));
    std::vector<double> want;
    uint64_t at_turn = 0;
    for (int64_t step = 0; step < 2 * kSteps; ++step) {
      if (step % kSteps == 0)
        single.reset_metrics();
      const std::vector<int64_t> rows = rows_of_step(step % kSteps, 2, data.num_samples);
      single.train_step({&data, rows});
      want.push_back(single.last_loss());
      at_turn = step + 1 == kTurn ? hash_of_weights(single) : at_turn;
    }
    Engine engine(config, data_spec(data));
    CHECK(engine.steps_at_once(2) == c.at_once);
    CHECK(engine.is_async());
    Trainer trainer(engine, config, [] { return 0.0; });
    Rarely control(engine, kTurn);
    Losses seen;
    trainer.add_saver(control);
    trainer.add_hook(seen);
    trainer.fit(data, nullptr);
    CHECK(seen.losses == want);
    CHECK(seen.logs == single.logs());
    CHECK(hash_of_weights(engine) == hash_of_weights(single));
    CHECK(engine.iterations() == single.iterations());
    CHECK((engine.iterations() < 2 * kSteps) == c.skips);
    CHECK(control.turns == std::vector<int64_t>{kTurn});
    CHECK(control.weights == at_turn);
  }
}

TEST_CASE("a loss that is not finite in the run before the last one ends training at its step") {
  if (test_runtime() == nullptr)
    return;
  HostTensor x = whole(points(200).inputs[0].rows);
  x.data<float>()[6 * 2 * 20] = std::numeric_limits<float>::quiet_NaN();  // of step 21
  const Dataset data = dataset_of(std::move(x), whole(points(200).targets[0].rows));
  const Config config = config_from(kSmall, on_gpu({}));
  Engine engine(config, data_spec(data));
  Trainer trainer(engine, config, [] { return 0.0; });
  Rarely control(engine, 64);
  Losses seen;
  trainer.add_saver(control);
  trainer.add_hook(seen);
  try {
    trainer.fit(data, nullptr);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kDiverged);
    CHECK(error.diagnostics().list()[0].message.starts_with(
        "the loss is nan at step 21 of epoch 1; "));
  }
  CHECK(control.turns.empty());
  CHECK(seen.losses.size() == 21);
  CHECK(engine.iterations() == 64);  // the next run was in flight
}

}  // namespace
}  // namespace meshtrain::test
