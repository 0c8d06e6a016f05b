// A run that is stopped and resumed ends with the bits of one that never stopped.
#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/host.h"
#include "checkpoint/restore.h"
#include "comm/socket.h"
#include "config/load.h"
#include "engine/signals.h"
#include "exec/executor.h"
#include "record/run_dir.h"
#include "support/engine_case.h"
#include "train/checkpointer.h"
#include "train/trainer.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr const char* kModel = R"(
seed: 11
dtype_policy: float64
distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 2], axis_names: [data, model]}
  layout_map:
    d1/kernel: [null, model]
    d1/bias: [model]
data: {train: {source: random, samples: 72, shape: [6], classes: 4, seed: 3}, remainder: keep}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 16, activation: relu}
    - BatchNormalization: {name: bn}
    - Dropout: 0.3
    - Dense: {name: d2, units: 4}
compile:
  optimizer: {Adam: {learning_rate: 0.01}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16, epochs: 3}
checkpoint: {every: never}
)";

// Raises a signal after a training step, or in a validation.
struct Stopper : Hook {
  void on_train_step(const TrainPosition& done, const StepRunner&) override {
    if ((done.epoch + 1) * 1000 + done.batch == at) {
      raise(signal_number);
    }
  }
  void on_pass_step(const PassPosition& position, const StepRunner&) override {
    if ((position.at.epoch + 1) * 1000 + kInValidation + position.step == at) {
      raise(signal_number);
    }
  }
  static constexpr int64_t kInValidation = 500;
  int64_t at = -1;  // epoch * 1000 + step, or + kInValidation + step of the validation
  int signal_number = SIGTERM;
};

struct EpochLogs : Hook {
  void on_epoch_end(EpochReport& report) override { epochs[report.epoch] = report.logs; }
  std::map<int64_t, Logs> epochs;
};

// The part of a run up to its end or to `stop_step`.
struct Part {
  std::map<std::string, HostTensor> variables;  // weights before an EMA takes their place, slots
  std::map<std::string, HostTensor> weights;    // at the end of fit
  std::map<int64_t, Logs> epochs;
  bool stopped = false;
  std::vector<std::string> warnings;
};

// What fit leaves before finalize_weights().
struct BeforeEnd : Hook {
  BeforeEnd(Engine& the_engine, Part& the_part) : engine(the_engine), part(the_part) {}
  void on_fit_end(const TrainPosition&) override {
    for (size_t v = 0; v < engine.store().variables().size(); ++v) {
      part.variables.emplace(engine.store().variables()[v].path,
                             engine.store().read(static_cast<int>(v)));
    }
  }
  Engine& engine;
  Part& part;
};

class Case {
 public:
  explicit Case(std::vector<std::string> overrides = {}) : overrides_(std::move(overrides)) {}

  // Resumes from the newest checkpoint in the folder, if there is one.
  Part run(int64_t stop_step, const std::vector<std::string>& more = {},
           const RestoreOptions& restore_options = {}, int signal_number = SIGTERM) {
    std::vector<std::string> all = overrides_;
    all.insert(all.end(), more.begin(), more.end());
    const Config config = config_from(kModel, all);
    const Dataset train = load_dataset(*config.data.train, config.data);
    std::optional<Dataset> validation;
    if (config.data.validation) {
      validation = load_dataset(*config.data.validation, config.data);
    }
    Engine engine(config, data_spec(train), {});
    Part part;
    std::filesystem::create_directories(folder_.file("checkpoints"));
    CheckpointerOptions options;
    options.run_dir = folder_.path();
    options.notes.written_by = "test";
    options.notes.state.cursor = data_cursor(train, config);
    options.notes.texts = {{"config.yaml", config.source_text},
                           {"config.resolved.yaml", resolved(all)}};
    options.now = steady_seconds;
    options.warn = [&](const std::string& text) { part.warnings.push_back(text); };
    options.inform = options.report = [](const std::string&) {};
    NewestCheckpoint newest = newest_checkpoint(folder_.file("checkpoints"));
    std::optional<TrainPosition> start;
    if (newest.reader) {
      options.notes.run_id = newest.reader->manifest().run_id;
      start = restore(engine, *newest.reader, options.notes.state.cursor,
                      changes_since(*newest.reader, resolved(all)), restore_options, part.warnings);
    }
    Checkpointer checkpointer(engine, config, options);
    if (newest.reader) {
      checkpointer.resume(*newest.reader, true);
    }
    Trainer trainer(engine, config, steady_seconds);
    Stopper stopper;
    stopper.at = stop_step;
    stopper.signal_number = signal_number;
    EpochLogs logs;
    BeforeEnd before_end(engine, part);
    trainer.add_hook(stopper);
    trainer.add_hook(logs);
    trainer.add_saver(checkpointer);
    trainer.add_hook(before_end);
    if (start) {
      trainer.start_at(*start);
    }
    catch_run_signals({});
    try {
      trainer.fit(train, validation ? &*validation : nullptr);
    } catch (const StopRequested& stop) {
      CHECK(stop.exit_code() == ExitCode::kStopped);
      part.stopped = true;
    }
    forget_stop_signal();
    for (const std::string& path : engine.weight_paths()) {
      part.weights.emplace(path, engine.read_variable(path));
    }
    part.epochs = std::move(logs.epochs);
    return part;
  }

  std::string checkpoints() const { return folder_.file("checkpoints"); }

 private:
  std::string resolved(const std::vector<std::string>& overrides) const {
    LoadOptions options;
    options.files = {folder_.write("case.yaml", kModel)};
    options.overrides = overrides;
    return show_config(options, false);
  }

  std::vector<std::string> overrides_;
  TempFolder folder_;
};

bool same_bits(const std::map<std::string, HostTensor>& a,
               const std::map<std::string, HostTensor>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (const auto& [path, tensor] : a) {
    const auto other = b.find(path);
    if (other == b.end() || other->second.shape() != tensor.shape() ||
        std::memcmp(other->second.bytes(), tensor.bytes(), tensor.num_bytes()) != 0) {
      MESSAGE(path);
      return false;
    }
  }
  return true;
}

double largest_difference(const std::map<std::string, HostTensor>& a,
                          const std::map<std::string, HostTensor>& b) {
  double out = 0;
  for (const auto& [path, tensor] : a) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      out = std::max(out, std::abs(tensor.at(i) - b.at(path).at(i)));
    }
  }
  return out;
}

const std::vector<std::string> kAll = {
    "compile.optimizer.Adam.use_ema=true", "compile.optimizer.Adam.gradient_accumulation_steps=3",
    "data.validation={source: random, samples: 40, shape: [6], classes: 4, seed: 8}"};

TEST_CASE("stopping at any step and resuming gives the bits of never stopping") {
  int stops = 0;
  for (const auto& overrides :
       {std::vector<std::string>{}, kAll,
        std::vector<std::string>{"compile.optimizer={SGD: {learning_rate: 0.05, momentum: 0.9}}",
                                 "dtype_policy=float32", "data.remainder=drop"},
        std::vector<std::string>{"dtype_policy=mixed_float16"},
        std::vector<std::string>{"dtype_policy=bfloat16", "data.remainder=drop"},
        std::vector<std::string>{"fit.steps_per_epoch=2", "fit.epochs=5",
                                 "checkpoint.async=false"}}) {
    Case whole(overrides);
    const Part expected = whole.run(-1);
    REQUIRE(expected.variables.size() > 4);
    for (const int64_t stop_step : {1001, 1002, 1004, 1005, 2001, 2002, 3001}) {
      CAPTURE(overrides.size());
      CAPTURE(stop_step);
      Case stopped(overrides);
      const Part first = stopped.run(stop_step);
      if (!first.stopped) {  // an epoch has fewer steps here
        continue;
      }
      ++stops;
      const Part rest = stopped.run(-1);
      CHECK(same_bits(rest.variables, expected.variables));
      CHECK(same_bits(rest.weights, expected.weights));
      std::map<int64_t, Logs> logs = first.epochs;
      for (const auto& [epoch, values] : rest.epochs) {
        CHECK_FALSE(logs.contains(epoch));
        logs[epoch] = values;
      }
      CHECK(logs == expected.epochs);
    }
  }
  CHECK(stops == 38);
}

TEST_CASE("a run stopped again and again ends with the same bits") {
  Case whole(kAll);
  const Part expected = whole.run(-1);
  Case stopped(kAll);
  for (const int64_t stop_step : {1002, 1003, 1005, 2004, 3001, 3004}) {
    stopped.run(stop_step);
  }
  const Part rest = stopped.run(-1);
  CHECK_FALSE(rest.stopped);
  CHECK(same_bits(rest.variables, expected.variables));
  CHECK(same_bits(rest.weights, expected.weights));
}

TEST_CASE("a validation that was stopped begins anew from the states that it began with") {
  const std::vector<std::string> stateful = {
      "distribution={device_mesh: {shape: [2], axis_names: [data]}}",
      "data={shuffle: false, remainder: drop, train: {source: random, samples: 26, shape: [5, 3], "
      "labels: [2], seed: 1}, validation: {source: random, samples: 34, shape: [5, 3], labels: "
      "[2], seed: 2}}",
      "model={layers: [{Input: {shape: [5, 3], batch_size: 8}}, {LSTM: {units: 4, stateful: "
      "true}}, {Dense: 2}]}",
      "compile={optimizer: adam, loss: mse}", "fit={batch_size: 8, epochs: 3}"};
  Case whole(stateful);
  const Part expected = whole.run(-1);
  Case stopped(stateful);
  std::map<int64_t, Logs> logs;
  for (const int64_t stop_step : {1502, 1503, 3501, -1}) {  // twice in one validation
    const Part part = stopped.run(stop_step);
    CHECK(part.stopped == (stop_step > 0));
    logs.insert(part.epochs.begin(), part.epochs.end());
    if (!part.stopped) {
      CHECK(same_bits(part.variables, expected.variables));
      CHECK(same_bits(part.weights, expected.weights));
    }
  }
  CHECK(logs == expected.epochs);
}

TEST_CASE("another mesh or layout resumes within rounding and back is exact at the place") {
  Case whole(kAll);
  const Part expected = whole.run(-1);
  const std::vector<std::vector<std::string>> places = {
      {"distribution.device_mesh.shape=[1, 1]"},
      {"distribution.device_mesh.shape=[4, 1]"},
      {"distribution.device_mesh.shape=[1, 4]"},
      {"distribution.device_mesh.shape=[2, 4]", "distribution.zero=1"},
      {"distribution.device_mesh.shape=[4, 2]", "distribution.zero=3"},
      {"distribution.layout_map={d2/kernel: [model, null]}"}};
  for (const auto& place : places) {
    CAPTURE(place[0]);
    Case moved(kAll);
    CHECK(moved.run(1003).stopped);
    const Part rest = moved.run(-1, place);
    CHECK(largest_difference(rest.variables, expected.variables) < 1e-9);
    CHECK(largest_difference(rest.weights, expected.weights) < 1e-9);
  }
}

TEST_CASE("what changed since is allowed or refused by its meaning") {
  struct Change {
    std::vector<std::string> more;
    const char *code, *says;
    RestoreOptions options = {};
    int64_t stop_step = 2002;
  };
  const std::vector<std::string> tanh = {"model.layers.d1.activation=tanh"},
                                 sgd = {"compile.optimizer={SGD: {learning_rate: 0.1}}"},
                                 data = {"data.train.random.seed=4"}, batch = {"fit.batch_size=8"};
  const char* const kOtherModel = "000007` is of another model\n";
  const char* const kOtherPlace =
      "the place in the data (epoch 2, batch 2) cannot be found in other data or another order\n";
  for (const Change& change : std::vector<Change>{
           {{"fit.epochs=5"}, "", ""},
           {{"compile.optimizer.Adam.learning_rate=0.001"}, "", ""},
           {{"model.layers.d1.units=8"}, "E410", kOtherModel},
           {{"model.layers.d1.units=8"},
            "E410",
            "other: d1/kernel is float64 (6, 16) in the checkpoint, float64 (6, 8) in the model"},
           {{"model.layers.d2.name=d3"}, "E410", "missing: d3/bias float64 (4,); it has `d2/bias`"},
           {{"model.layers.d2.name=d3"}, "E410", "unexpected: d2/bias float64 (4,)"},
           {{"dtype_policy=float32"}, "E410", "is float64 (16,) in the checkpoint, float32 (16,)"},
           {tanh, "E411", "the model or its loss is not that of the checkpoint"},
           {tanh, "E411", "activation: relu -> tanh"},
           {tanh, "", "", {.allow = {"model.layers"}}},
           {{"compile.loss=sparse_categorical_crossentropy"},
            "E411",
            "compile.loss.SparseCategoricalCrossentropy.from_logits: true -> "},
           {sgd, "E412", "the checkpoint has the state of `adam`, the config says `sgd`"},
           {sgd, "E412", "--reset-optimizer takes the weights alone"},
           {sgd, "", "", {.reset_optimizer = true}},
           {{"compile.optimizer.Adam.amsgrad=true"},
            "E412",
            "the optimizer keeps other state than in the checkpoint"},
           {data, "E413", kOtherPlace},
           {data, "E413", "data.train: 72 samples "},
           {data, "E413", "--reset-cursor begins the epoch anew"},
           {data, "", "", {.allow = {"data.train"}}},
           {batch, "E413", "fit.batch_size: 16 -> 8"},
           {batch, "", "", {.reset_cursor = true}},
           {batch, "", "", {}, 1005},  // between two epochs
           {{"seed=12"}, "E413", "seed: 11 -> 12"},
           {{"data.shuffle=false"}, "E413", "data.shuffle: true -> false"}}) {
    CAPTURE(change.more[0]);
    Case stopped;
    REQUIRE(stopped.run(change.stop_step).stopped);
    const Caught refused = caught([&] { stopped.run(-1, change.more, change.options); });
    CHECK(refused.code == change.code);
    CHECK(refused.exit_code == (refused.code.empty() ? 0 : 6));
    CHECK_MESSAGE(refused.says(change.says), refused.text);
  }
}

TEST_CASE("checkpoints appear when the config says so and the old ones go") {
  Case steps;
  steps.run(-1, {"checkpoint.every=2 steps", "checkpoint.keep_every=4 steps"});
  // 15 steps; the last step of an epoch (5, 10, 15) is saved at the epoch's end.
  CHECK(checkpoint_steps(steps.checkpoints()) == std::vector<int64_t>{15, 14, 12, 8, 4});
  Case epochs;
  epochs.run(-1, {"checkpoint.every=2 epochs", "checkpoint.keep=2"});
  CHECK(checkpoint_steps(epochs.checkpoints()) == std::vector<int64_t>{15, 10});
  Case never;
  never.run(-1);
  CHECK(checkpoint_steps(never.checkpoints()).empty());
  Case asked;
  CHECK_FALSE(asked.run(2002, {}, {}, SIGUSR2).stopped);
  CHECK(checkpoint_steps(asked.checkpoints()) == std::vector<int64_t>{7});
}

TEST_CASE("the best checkpoint is kept and known after a restart") {
  const std::vector<std::string> overrides = {
      "data.validation={source: random, samples: 40, shape: [6], classes: 4, seed: 8}",
      "checkpoint.every=epoch", "checkpoint.keep=2", "fit.epochs=9"};
  Case whole(overrides);
  const Part part = whole.run(-1);
  int64_t best = 0;
  double value = INFINITY;
  for (const auto& [epoch, logs] : part.epochs) {
    for (const auto& [name, number] : logs) {
      if (name == "val_loss" && number < value) {
        value = number;
        best = epoch;
      }
    }
  }
  const NewestCheckpoint newest = newest_checkpoint(whole.checkpoints());
  CHECK(newest.reader->state().best_step == best * 5);
  CHECK(newest.reader->state().best == value);
  const std::vector<int64_t> steps = checkpoint_steps(whole.checkpoints());
  CHECK(std::find(steps.begin(), steps.end(), best * 5) != steps.end());
  Case stopped(overrides);
  stopped.run(6002);
  stopped.run(-1);
  const NewestCheckpoint again = newest_checkpoint(stopped.checkpoints());
  CHECK(again.reader->state().best_step == best * 5);
  CHECK(again.reader->state().best == value);
}

constexpr const char* kValidated =
    "data.validation={source: random, samples: 40, shape: [6], classes: 4, seed: 8}";

double val_loss(const Part& part, int64_t epoch) {
  for (const auto& [name, value] : part.epochs.at(epoch)) {
    if (name == "val_loss") {
      return value;
    }
  }
  return NAN;
}

std::string best_link(const Case& run) {
  return std::filesystem::read_symlink(run.checkpoints() + "/best").string();
}

TEST_CASE("a best epoch whose save failed is forgotten and the best before it is kept") {
  // Better after the second epoch, worse after that.
  Case run({kValidated, "checkpoint.every=epoch", "checkpoint.keep=2", "checkpoint.async=false",
            "fit.epochs=5",
            "compile.optimizer={Adam: {learning_rate: {PiecewiseConstantDecay: {boundaries: [10], "
            "values: [0.01, 3.0]}}}}"});
  std::filesystem::create_directories(run.checkpoints() + "/000010/in_the_way");
  const Part part = run.run(-1);
  REQUIRE(val_loss(part, 2) < val_loss(part, 1));
  REQUIRE(val_loss(part, 3) > val_loss(part, 1));
  const bool warned = std::any_of(part.warnings.begin(), part.warnings.end(), [](const auto& text) {
    return text.find("[E456] step 10 was not saved") != std::string::npos;
  });
  CHECK(warned);
  CHECK(best_link(run) == "000005");
  const NewestCheckpoint newest = newest_checkpoint(run.checkpoints());
  CHECK(newest.reader->state().best_step == 5);
  CHECK(newest.reader->state().best == val_loss(part, 1));
  CheckpointReader(run.checkpoints() + "/000005").verify();
}

TEST_CASE("a checkpoint made while the validation ran that finds it the best is the best") {
  Case run({kValidated, "checkpoint.every=epoch", "checkpoint.keep=2", "fit.epochs=4",
            "compile.optimizer={Adam: {learning_rate: {PiecewiseConstantDecay: {boundaries: [5], "
            "values: [0.01, 3.0]}}}}"});
  REQUIRE(run.run(1005).stopped);
  const Part part = run.run(-1);
  REQUIRE(val_loss(part, 2) > val_loss(part, 1));
  CHECK(best_link(run) == "000005");
  CHECK(newest_checkpoint(run.checkpoints()).reader->state().best_step == 5);
}

TEST_CASE("damaged and newer checkpoints are quarantined before training resumes") {
  Case damaged({"checkpoint.every=2 steps"});
  const Part expected = damaged.run(-1);
  const std::string newest = damaged.checkpoints() + "/000015/state.json";
  std::filesystem::resize_file(newest, 20);
  const Part again = damaged.run(-1);
  CHECK(same_bits(again.variables, expected.variables));
  CHECK(std::filesystem::exists(damaged.checkpoints() + "/aside.000015.1"));
  CHECK(checkpoint_steps(damaged.checkpoints()).front() == 15);
}

TEST_CASE("the best follows what is resumed from when newer checkpoints are quarantined") {
  // Better after the second epoch than after the first, as the tests above.
  Case run({kValidated, "checkpoint.every=2 steps", "checkpoint.keep=2", "fit.epochs=2"});
  run.run(-1);
  REQUIRE(best_link(run) == "000010");
  REQUIRE(checkpoint_steps(run.checkpoints()) == std::vector<int64_t>{10, 8});
  REQUIRE(CheckpointReader(run.checkpoints() + "/000008").state().best_step == 5);
  std::filesystem::resize_file(run.checkpoints() + "/000010/state.json", 20);
  // The best of then was pruned: none is known, and the link names nothing that is not there.
  REQUIRE(run.run(2004).stopped);
  CHECK_FALSE(std::filesystem::is_symlink(run.checkpoints() + "/best"));
  CHECK(newest_checkpoint(run.checkpoints()).reader->state().best_step == -1);
  run.run(-1);
  CHECK(best_link(run) == "000010");
  // As if it had been killed between the save and its link.
  std::filesystem::remove(run.checkpoints() + "/best");
  std::filesystem::create_symlink("000009", run.checkpoints() + "/best");
  run.run(-1);
  CHECK(best_link(run) == "000010");
}

TEST_CASE("weights that are not finite end the run with exit code 5") {
  Case diverging({"checkpoint.every=1 steps", "checkpoint.async=false",
                  "compile.optimizer={SGD: {learning_rate: 1e308}}",
                  "model.layers.d1.activation=linear"});
  const Caught end = caught([&] { diverging.run(-1); });
  CHECK(end.code == "E501");
  CHECK(end.exit_code == 5);
  for (const int64_t step : checkpoint_steps(diverging.checkpoints())) {
    CheckpointReader(diverging.checkpoints() + "/" + checkpoint_name(step)).verify();
  }
}

}  // namespace
