#include "train/trainer.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "engine/coordinator.h"
#include "engine/sample_weights.h"
#include "engine/signals.h"
#include "fake_runner.h"
#include "record/events.h"
#include "support/thread_group.h"
#include "train/callbacks/callback_list.h"
#include "train/skip_watch.h"

namespace meshtrain {
namespace {

using Rows = std::vector<std::vector<int64_t>>;

Config config_of(int64_t batch_size, int64_t epochs) {
  Config config;
  config.fit.batch_size.value = batch_size;
  config.fit.epochs.value = epochs;
  config.data.shuffle.value = false;
  return config;
}

// Remembers what the trainer reported.
struct Recorder : Hook {
  void on_epoch_begin(const EpochStart& start) override { targets.push_back(start.steps); }
  void on_epoch_end(EpochReport& report) override { epochs.push_back(report); }
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override {
    if (position.pass == Pass::kEvaluation) {
      evaluations.push_back(report);
    }
  }
  void on_warning(const std::string& text) override { warnings.push_back(text); }

  std::vector<int64_t> targets;
  std::vector<EpochReport> epochs;
  std::vector<EvaluateReport> evaluations;
  std::vector<std::string> warnings;
};

struct Session {
  explicit Session(Config the_config)
      : config(std::move(the_config)), trainer(runner, config, [this] { return now += 0.5; }) {
    trainer.add_hook(recorder);
  }
  double now = 0;
  Config config;
  FakeRunner runner;
  Recorder recorder;
  Trainer trainer;
};

TEST_CASE("the last smaller batch is used and the epoch loss is the mean over samples") {
  Session s(config_of(2, 1));
  s.trainer.fit(dataset_of({10, 20, 30, 30, 40}), nullptr);
  CHECK(s.runner.trained == Rows{{0, 1}, {2, 3}, {4}});
  REQUIRE(s.recorder.epochs.size() == 1);
  CHECK(s.recorder.epochs[0].steps == 3);
  CHECK(s.recorder.epochs[0].logs == Logs{{"accuracy", 0.5}, {"loss", 26.0}});
  CHECK(s.runner.finalized == 1);
}

// The time at which it begins.
struct Beginning : Callback {
  Beginning(CallbackContext& context, double& at) : Callback(context, "beginning"), at_(at) {}
  void on_train_begin(const TrainPosition&) override { at_ = context().shared_now(); }
  double& at_;
};

// Processes of several hosts: their clocks began at different times.
TEST_CASE("callbacks begin at rank 0's time in every process") {
  std::vector<double> began(2, -1);
  run_as_processes(2, [&](const std::shared_ptr<ThreadGroup>& group) {
    const size_t rank = static_cast<size_t>(group->rank());
    const Clock clock = [rank] { return 100.0 + 1000.0 * static_cast<double>(rank); };
    Coordinator coordinator({group, nullptr}, clock);
    Session s(config_of(2, 1));
    CallbackList callbacks(
        {.runner = s.runner, .config = s.config, .now = clock, .shared_now = [&] {
           return coordinator.now();
         }});
    callbacks.add(std::make_unique<Beginning>(callbacks.context(), began[rank]));
    s.trainer.add_hook(*callbacks.all().front());
    s.trainer.set_coordinator(coordinator);
    s.trainer.fit(dataset_of({1, 2, 3, 4}), nullptr);
  });
  CHECK(began == std::vector<double>{100, 100});
}

TEST_CASE("remainder drop leaves the incomplete batch out of training only") {
  Config config = config_of(2, 1);
  config.data.remainder.value = Remainder::kDrop;
  Session s(config);
  const Dataset data = dataset_of({1, 2, 3});
  s.trainer.fit(data, &data);
  CHECK(s.runner.trained == Rows{{0, 1}});
  CHECK(s.runner.tested == Rows{{0, 1}, {2}});
}

TEST_CASE("dropping the only batch is an error that names both numbers") {
  Config config = config_of(4, 1);
  config.data.remainder.value = Remainder::kDrop;
  Session s(config);
  try {
    s.trainer.fit(dataset_of({1, 2, 3}), nullptr);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().list()[0].code == "E316");
    CHECK(error.diagnostics().list()[0].message.find("3 samples") == 0);
    CHECK(error.exit_code() == ExitCode::kData);
  }
}

TEST_CASE("steps_per_epoch continues through the data and starts again where it ends") {
  Config config = config_of(1, 4);
  config.fit.steps_per_epoch.value = 3;
  Session s(config);
  s.trainer.fit(dataset_of({0, 1, 2, 3, 4}), nullptr);
  CHECK(s.runner.trained == Rows{{0}, {1}, {2}, {3}, {4}, {0}, {1}, {2}, {3}, {4}});
  std::vector<int64_t> steps;
  for (const EpochReport& report : s.recorder.epochs) {
    steps.push_back(report.steps);
  }
  CHECK(steps == std::vector<int64_t>{3, 2, 3, 2});
  CHECK(s.recorder.targets == std::vector<int64_t>{3, 3, 3, 3});
  CHECK(s.recorder.warnings.size() == 2);
  CHECK(s.recorder.warnings[0].find("epoch 2 ran out of data after 2 of 3 steps") == 0);
}

TEST_CASE("data that ran out are warned of once, where a run is resumed in the validation") {
  Config config = config_of(1, 1);
  config.fit.steps_per_epoch.value = 3;
  const Dataset data = dataset_of({0, 1});
  struct Stopper : Hook {
    void on_pass_begin(const PassPosition& position) override {
      at = position.at;
      throw std::runtime_error("stopped");
    }
    TrainPosition at;
  } stopper;
  Session stopped(config);
  stopped.trainer.add_hook(stopper);
  CHECK_THROWS(stopped.trainer.fit(data, &data));
  CHECK(stopped.recorder.warnings.empty());
  Session resumed(config);
  std::vector<std::string> events;
  EventLog log(false, false);
  log.add_sink([&](std::string_view line) { events.emplace_back(line); });
  resumed.trainer.add_hook(log);
  resumed.trainer.start_at(stopper.at);
  resumed.trainer.fit(data, &data);
  CHECK(resumed.runner.trained.empty());
  CHECK(resumed.recorder.warnings.size() == 1);
  CHECK(events.back().find(R"({"event":"warning","epoch":1,"text":"epoch 1 ran out)") == 0);
}

TEST_CASE("the plan of an epoch needs no history") {
  FitConfig fit;
  fit.steps_per_epoch.value = 2;
  const EpochPlan third = plan_epoch(fit, 4, 2);
  CHECK(third.pass == 1);
  CHECK(third.first_batch == 0);
  CHECK(third.steps == 2);
  CHECK_FALSE(third.ran_out);
  CHECK_FALSE(plan_epoch(fit, 4, 3).ran_out);
  fit.steps_per_epoch.value = 9;
  const EpochPlan beyond = plan_epoch(fit, 4, 7);
  CHECK(beyond.pass == 7);
  CHECK(beyond.steps == 4);
  CHECK(beyond.ran_out);
}

TEST_CASE("limit_steps cuts each epoch short without a warning") {
  Config config = config_of(1, 2);
  config.fit.limit_steps.value = 2;
  Session s(config);
  s.trainer.fit(dataset_of({0, 1, 2, 3}), nullptr);
  CHECK(s.runner.trained == Rows{{0}, {1}, {0}, {1}});
  CHECK(s.recorder.targets == std::vector<int64_t>{2, 2});
  CHECK(s.recorder.warnings.empty());
}

TEST_CASE("epochs is the last epoch and initial_epoch the first") {
  Config config = config_of(4, 5);
  config.fit.initial_epoch.value = 3;
  Session s(config);
  s.trainer.fit(dataset_of({1, 2}), nullptr);
  REQUIRE(s.recorder.epochs.size() == 2);
  CHECK(s.recorder.epochs[0].epoch == 4);
  CHECK(s.recorder.epochs[1].epoch == 5);
  CHECK(s.recorder.epochs[1].epochs == 5);
}

TEST_CASE("every epoch shuffles anew and initial_epoch sees the order it would have seen") {
  Config config = config_of(64, 3);
  config.data.shuffle.value = true;
  const Dataset data = dataset_of(std::vector<double>(64, 1.0));
  Session all(config);
  all.trainer.fit(data, nullptr);
  REQUIRE(all.runner.trained.size() == 3);
  CHECK(all.runner.trained[0] != all.runner.trained[1]);
  std::vector<int64_t> sorted = all.runner.trained[0];
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted.front() == 0);
  CHECK(sorted.back() == 63);
  config.fit.initial_epoch.value = 2;
  Session last(config);
  last.trainer.fit(data, nullptr);
  CHECK(last.runner.trained[0] == all.runner.trained[2]);
  // Parts of a pass, too.
  config = config_of(16, 4);
  config.fit.steps_per_epoch.value = 3;
  Session parts(config);
  parts.trainer.fit(data, nullptr);
  config.fit.initial_epoch.value = 1;
  Session later(config);
  later.trainer.fit(data, nullptr);
  REQUIRE(parts.runner.trained.size() == 8);  // 3 + 1 + 3 + 1 batches
  CHECK(later.runner.trained == Rows(parts.runner.trained.begin() + 3, parts.runner.trained.end()));
}

TEST_CASE("validation follows its frequency and its logs come after those of training") {
  Config config = config_of(2, 3);
  config.fit.validation_freq.value = 2;
  config.fit.validation_batch_size.value = 3;
  Session s(config);
  const Dataset validation = dataset_of({5, 6, 7, 8});
  s.trainer.fit(dataset_of({1, 3}), &validation);
  CHECK(s.runner.tested == Rows{{0, 1, 2}, {3}});
  CHECK(s.recorder.epochs[0].logs.size() == 2);
  CHECK(s.recorder.epochs[1].logs ==
        Logs{{"accuracy", 0.5}, {"loss", 2}, {"val_accuracy", 0.5}, {"val_loss", 6.5}});
  CHECK(s.recorder.epochs[2].logs.size() == 2);
  CHECK(s.recorder.epochs[1].seconds > s.recorder.epochs[1].train_seconds);
  CHECK(s.recorder.evaluations.empty());
}

TEST_CASE("validation_freq as a list names the epochs and validation_steps cuts") {
  Config config = config_of(1, 3);
  config.fit.validation_epochs = {1, 3};
  config.fit.validation_steps.value = 1;
  Session s(config);
  const Dataset validation = dataset_of({5, 6});
  s.trainer.fit(dataset_of({1}), &validation);
  CHECK(s.runner.tested == Rows{{0}, {0}});
  CHECK(s.recorder.epochs[1].logs.size() == 2);
}

TEST_CASE("evaluate keeps file order and predict joins its batches") {
  Config config = config_of(2, 1);
  config.data.shuffle.value = true;
  Session s(config);
  CHECK(s.trainer.evaluate(dataset_of({1, 2, 6}), 2, 0) == Logs{{"accuracy", 0.5}, {"loss", 3}});
  CHECK(s.runner.tested == Rows{{0, 1}, {2}});
  CHECK(s.recorder.evaluations.size() == 1);
  const std::vector<HostTensor> outputs = s.trainer.predict(dataset_of({0, 0, 0}), 2);
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].shape() == Shape{3, 2});
  CHECK(outputs[0].at(4) == 2);
  CHECK(outputs[0].at(5) == -2);
}

TEST_CASE("a loss that is not finite ends the run and names the step") {
  Session s(config_of(1, 2));
  try {
    s.trainer.fit(dataset_of({1, std::numeric_limits<double>::quiet_NaN(), 2}), nullptr);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kDiverged);
    CHECK(error.diagnostics().list()[0].code == "E501");
    CHECK(error.diagnostics().list()[0].message ==
          "the loss is nan at step 2 of epoch 1; all weights are finite");
  }
  CHECK(s.runner.trained.size() == 2);
}

TEST_CASE("step events hold the loss of their batch in the shortest digits") {
  Session s(config_of(1, 1));
  std::vector<std::string> lines;
  EventLog events(true, false);
  events.add_sink([&](std::string_view line) { lines.emplace_back(line); });
  s.trainer.add_hook(events);
  s.trainer.fit(dataset_of({static_cast<double>(0.1f), 3}), nullptr);
  CHECK(lines[0] == R"({"event":"step","epoch":1,"step":1,"loss":0.1})");
  CHECK(lines[1] == R"({"event":"step","epoch":1,"step":2,"loss":3})");
  CHECK(lines[2].find(R"({"event":"epoch","epoch":1,"steps":2,"seconds":)") == 0);
}

// Wants to act after every third step.
struct EveryThird : Hook {
  int64_t steps_until_sync(const TrainPosition& at) const override { return 3 - at.step % 3; }
  bool needs_sync(const TrainPosition&, bool) override { return true; }
  void on_sync(const TrainPosition& at, bool last) override {
    steps.push_back(at.step);
    lasts.push_back(last);
  }

  std::vector<int64_t> steps;
  std::vector<bool> lasts;
};

TEST_CASE("steps that nobody must look between run together and are reported one by one") {
  Session s(config_of(2, 1));
  s.runner.most_steps = 4;
  std::vector<std::string> lines;
  EventLog events(true, false);
  events.add_sink([&](std::string_view line) { lines.emplace_back(line); });
  s.trainer.add_hook(events);
  s.trainer.fit(dataset_of({1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7}), nullptr);
  CHECK(s.runner.runs == std::vector<int64_t>{4, 2, 1});  // the smaller batch by itself
  CHECK(s.runner.trained == Rows{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12}});
  REQUIRE(lines.size() == 8);
  for (int step = 1; step <= 7; ++step) {
    CHECK(lines[static_cast<size_t>(step - 1)] ==
          fmt::format(R"({{"event":"step","epoch":1,"step":{0},"loss":{0}}})", step));
  }
}

TEST_CASE("steps run together up to where somebody acts") {
  Session s(config_of(1, 2));
  s.runner.most_steps = 32;
  EveryThird control;
  s.trainer.add_saver(control);
  s.trainer.fit(dataset_of({1, 2, 3, 4, 5}), nullptr);
  CHECK(s.runner.runs == std::vector<int64_t>{3, 2, 1, 3, 1});
  CHECK(control.steps == std::vector<int64_t>{3, 5, 6, 9, 10});
  CHECK(control.lasts == std::vector<bool>{false, true, false, false, true});
}

// Has nothing to do but at one step, or where a step before it raised a signal.
struct AtStep : EveryThird {
  int64_t steps_until_sync(const TrainPosition&) const override { return 1000; }
  bool needs_sync(const TrainPosition& at, bool) override {
    return at.step == wanted || stop_signal() != 0;
  }
  void on_sync(const TrainPosition& at, bool last) override {
    EveryThird::on_sync(at, last);
    if (stop_signal() != 0) {
      throw_stopped(stop_signal(), fmt::format("step {}", at.step));
    }
  }
  int64_t wanted = 0;
};

// A device that computes two steps at once, and the next two while it is asked about those.
struct AsyncSession : Session {
  explicit AsyncSession(const Config& the_config) : Session(the_config) {
    runner.most_steps = 2;
    runner.is_async_runner = true;
    trainer.add_saver(control);
  }
  AtStep control;
};

std::vector<double> numbers_to(int last) {
  std::vector<double> out(static_cast<size_t>(last));
  std::iota(out.begin(), out.end(), 1.0);
  return out;
}

TEST_CASE("a runner that runs ahead has the next steps before those before them are seen") {
  AsyncSession s(config_of(1, 2));
  std::vector<std::string> lines;
  EventLog events(true, false);
  events.add_sink([&](std::string_view line) { lines.emplace_back(line); });
  s.trainer.add_hook(events);
  s.trainer.fit(dataset_of(numbers_to(5)), nullptr);
  const std::vector<std::string> epoch = {"run 2", "run 2", "see 1", "see 2",
                                          "run 1", "see 3", "see 4", "see 5"};
  REQUIRE(s.runner.calls.size() == 16);
  CHECK(std::vector(s.runner.calls.begin(), s.runner.calls.begin() + 8) == epoch);
  CHECK(s.runner.calls[8] == "run 2");
  REQUIRE(lines.size() == 12);
  for (int step = 1; step <= 5; ++step) {
    CHECK(lines[static_cast<size_t>(step - 1)] ==
          fmt::format(R"({{"event":"step","epoch":1,"step":{0},"loss":{0}}})", step));
  }
  CHECK(lines[5].find(R"({"event":"epoch","epoch":1,"steps":5)") == 0);
}

TEST_CASE("who acts between steps finds all before them seen and none begun after them") {
  AsyncSession s(config_of(1, 1));
  s.control.wanted = 4;
  s.trainer.fit(dataset_of(numbers_to(8)), nullptr);
  CHECK(s.control.steps == std::vector<int64_t>{4});
  const std::vector<std::string> wanted = {"run 2", "run 2", "see 1", "see 2", "see 3", "see 4",
                                           "run 2", "run 2", "see 5", "see 6", "see 7", "see 8"};
  CHECK(s.runner.calls == wanted);
}

TEST_CASE("a signal while steps run ahead stops after the last one that was begun") {
  AsyncSession s(config_of(1, 1));
  struct Killer : Hook {
    void on_train_step(const TrainPosition& at, const StepRunner&) override {
      const int64_t step = at.batch;
      seen = step;
      if (step == 1) {
        raise(SIGTERM);
      }
    }
    int64_t seen = 0;
  } killer;
  s.trainer.add_hook(killer);
  catch_stop_signals();
  CHECK_THROWS_AS(s.trainer.fit(dataset_of(numbers_to(8)), nullptr), StopRequested);
  forget_stop_signal();
  CHECK(s.control.steps == std::vector<int64_t>{4});
  CHECK(killer.seen == 4);
  CHECK(s.runner.trained.size() == 4);
}

// The second of two runs in flight holds the loss, the control wants to save after it.
TEST_CASE("a loss that is not finite ends the run before anybody can save the steps after it") {
  for (const int64_t bad : {1, 2, 3, 4}) {
    CAPTURE(bad);
    AsyncSession s(config_of(1, 1));
    s.control.wanted = 4;
    std::vector<double> losses = numbers_to(8);
    losses[static_cast<size_t>(bad - 1)] = std::numeric_limits<double>::quiet_NaN();
    try {
      s.trainer.fit(dataset_of(losses), nullptr);
      FAIL("no error");
    } catch (const ConfigError& error) {
      CHECK(error.exit_code() == ExitCode::kDiverged);
      CHECK(error.diagnostics().list()[0].message ==
            fmt::format("the loss is nan at step {} of epoch 1; all weights are finite", bad));
    }
    CHECK(s.control.steps.empty());
  }
}

// Looks at the model after every third step.
struct ThirdStep : Callback {
  ThirdStep(CallbackContext& context, const FakeRunner& the_runner)
      : Callback(context, "ThirdStep"), runner(the_runner) {}
  int64_t steps_until_sync(const TrainPosition&) const override { return 3 - done % 3; }
  void on_train_step(const TrainPosition&, const StepRunner&) override {
    if (++done % 3 == 0) {
      model_steps.push_back(static_cast<int64_t>(runner.trained.size()));
    }
  }
  const FakeRunner& runner;
  int64_t done = 0;
  std::vector<int64_t> model_steps;
};

TEST_CASE("a callback sees the model of its step though steps run ahead") {
  AsyncSession s(config_of(1, 1));
  CallbackList callbacks({.runner = s.runner,
                          .config = s.config,
                          .run_dir = "",
                          .now = {},
                          .print = {},
                          .warn = {},
                          .larger_is_better = {},
                          .save_model = {}});
  auto added = std::make_unique<ThirdStep>(callbacks.context(), s.runner);
  const ThirdStep& third = *added;
  callbacks.add(std::move(added));
  s.trainer.add_hook(*callbacks.all().front());
  s.trainer.fit(dataset_of(numbers_to(11)), nullptr);
  CHECK(third.model_steps == std::vector<int64_t>{3, 6, 9});
  CHECK(third.done == 11);
  const std::vector<int64_t> runs = {2, 1, 2, 1, 2, 1, 2};
  CHECK(s.runner.runs == runs);
  CHECK(s.runner.calls[1] == "run 1");  // in flight with the two before
}

TEST_CASE("data that cannot be read end the run after the steps that were begun are seen") {
  struct Broken final : meshtrain::Rows {
    DType dtype() const override { return DType::kFloat64; }
    const Shape& shape() const override { return shape_; }
    void read(std::span<const int64_t> order, std::byte* to) const override {
      for (const int64_t row : order) {
        if (row >= 5) {
          throw std::runtime_error("row 5");
        }
        const double value = static_cast<double>(row + 1);
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
      }
    }
    Shape shape_ = {8};
  };
  AsyncSession s(config_of(1, 1));
  Dataset data = dataset_of(numbers_to(8));
  data.targets[0].rows = std::make_shared<Broken>();
  s.config.data.prefetch.value = 1;
  CHECK_THROWS_WITH(s.trainer.fit(data, nullptr), "row 5");
  CHECK(s.runner.calls.back() == "see 4");
}

TEST_CASE("a loss that is not finite among steps that run together names its step") {
  Session s(config_of(1, 1));
  s.runner.most_steps = 4;
  try {
    s.trainer.fit(dataset_of({1, 2, std::numeric_limits<double>::infinity(), 4}), nullptr);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().list()[0].message ==
          "the loss is inf at step 3 of epoch 1; all weights are finite");
  }
}

TEST_CASE("a resumed run trains the rest of its epoch") {
  Session s(config_of(2, 3));
  s.trainer.start_at({.step = 4, .epoch = 1, .batch = 1});
  s.trainer.fit(dataset_of({10, 20, 30, 30, 40}), nullptr);
  CHECK(s.runner.trained == Rows{{2, 3}, {4}, {0, 1}, {2, 3}, {4}});
  REQUIRE(s.recorder.epochs.size() == 2);
  CHECK(s.recorder.epochs[0].epoch == 2);
  CHECK(s.recorder.epochs[0].steps == 3);
}

TEST_CASE("a run that was stopped in a validation begins it anew") {
  Session s(config_of(2, 2));
  const Logs logs = {{"accuracy", 0.25}, {"loss", 7}};
  s.trainer.start_at({.step = 3,
                      .epoch = 0,
                      .batch = 3,
                      .epoch_trained = true,
                      .logs = logs,
                      .timed_steps = 2,
                      .train_seconds = 0.5});
  const Dataset data = dataset_of({10, 20, 30, 30, 40});
  s.trainer.fit(data, &data);
  CHECK(s.runner.trained == Rows{{0, 1}, {2, 3}, {4}});  // of epoch 2
  REQUIRE(s.recorder.epochs.size() == 2);
  CHECK(s.recorder.epochs[0].logs ==
        Logs{{"accuracy", 0.25}, {"loss", 7}, {"val_accuracy", 0.5}, {"val_loss", 26.0}});
  CHECK(s.recorder.epochs[0].seconds_per_step() == 0.25);  // as timed before the stop
}

// A saver takes the position from a validation.
TEST_CASE("a position within a validation has the time of the epoch's steps") {
  Session s(config_of(2, 1));
  struct Validations : Hook {
    void on_pass_begin(const PassPosition& position) override { at = position.at; }
    TrainPosition at;
  } seen;
  s.trainer.add_hook(seen);
  const Dataset data = dataset_of({10, 20, 30, 30, 40});
  s.trainer.fit(data, &data);
  CHECK(seen.at.timed_steps == 3);
  CHECK(seen.at.train_seconds == s.recorder.epochs[0].train_seconds);
}

// Of a run whose steps change no weight: its runner counts no iterations.
TEST_CASE("a loss scale that skips steps: the advice fits the beginning of the run") {
  struct Skipping : FakeRunner {
    int64_t iterations() const override { return 0; }
  } runner;
  runner.weights["scale"] = tensor_of(DType::kFloat32, {1}, std::vector<double>{32});
  const auto warning_of = [&](const TrainPosition& begin, int steps) {
    std::string warning;
    SkipWatch watch(runner, "scale", [&](const std::string& text) { warning = text; });
    watch.on_train_begin(begin);
    for (int i = 0; i < steps; ++i) {
      watch.on_train_step(begin, runner);
    }
    EpochReport report{.epoch = begin.epoch + 1};
    watch.on_epoch_end(report);
    return warning;
  };
  CHECK(warning_of({}, 4) ==
        "[W503] 4 of the 4 steps of epoch 1 changed no weight: their gradients were not finite. "
        "The loss scale is 32 now, and halves with each such step: give LossScaleOptimizer a "
        "smaller `initial_scale`");
  CHECK(warning_of({.step = 8, .epoch = 1, .batch = 2}, 3) ==
        "[W503] 3 of the 3 steps of epoch 2 since the resume changed no weight: their gradients "
        "were not finite. The loss scale is 32 now, and halves with each such step: it comes from "
        "the checkpoint; a new run can begin with a smaller `initial_scale` of LossScaleOptimizer");
  CHECK(warning_of({.step = 8, .epoch = 1, .batch = 2, .epoch_trained = true}, 0).empty());
}

TEST_CASE("a signal lets the step finish and then ends the run") {
  Session s(config_of(1, 2));
  struct Killer : Hook {
    void on_train_step(const TrainPosition& at, const StepRunner&) override {
      const int64_t step = at.batch;
      if (step == 2) {
        raise(SIGTERM);
      }
    }
  } killer;
  s.trainer.add_hook(killer);
  catch_stop_signals();
  try {
    s.trainer.fit(dataset_of({1, 2, 3}), nullptr);
    FAIL("the run continued");
  } catch (const StopRequested& stop) {
    CHECK(stop.exit_code() == ExitCode::kTerminated);
    CHECK(std::string(stop.what()) == "terminated after step 2 of epoch 1; weights were not saved");
  }
  CHECK(s.runner.trained.size() == 2);
  forget_stop_signal();
}

TEST_CASE("class weights become sample weights") {
  Config config;
  config.fit.class_weight = {{"0", {0.5, {}}}, {"2", {4, {}}}};
  config.compile.loss = {{"", default_object(Category::kLoss, "SparseCategoricalCrossentropy")}};
  Diagnostics diagnostics;
  const auto weights_of = [&](Dataset& dataset) {
    apply_class_weight(config, true, dataset, diagnostics);
    REQUIRE(dataset.sample_weight);
    return dataset.sample_weight->tensor()->clone();
  };
  Dataset ids = dataset_of({0, 1, 2});
  CHECK(weights_of(ids).at(0) == 0.5);
  CHECK(ids.sample_weight->tensor()->at(1) == 1);
  CHECK(ids.sample_weight->tensor()->at(2) == 4);
  Dataset steps = dataset_of({0, 0});
  steps.targets[0].rows = make_rows(tensor_of<int32_t>(DType::kInt32, {2, 3}, {0, 1, 2, 2, 1, 0}));
  CHECK(weights_of(steps).shape() == Shape{2, 3});
  CHECK(steps.sample_weight->tensor()->at(2) == 4);
  CHECK(steps.sample_weight->tensor()->at(5) == 0.5);
  Dataset named = dataset_of({0, 1, 2});
  named.class_names = {"2", "0", "1"};
  CHECK(weights_of(named).at(0) == 4);
  CHECK(named.sample_weight->tensor()->at(1) == 0.5);
  config.compile.loss[0].object = default_object(Category::kLoss, "CategoricalCrossentropy");
  Dataset one_hot = dataset_of({0, 0});
  one_hot.targets[0].rows =
      make_rows(tensor_of<double>(DType::kFloat32, {2, 3}, {0, 0, 1, 1, 0, 0}));
  CHECK(weights_of(one_hot).at(0) == 4);
  CHECK(one_hot.sample_weight->tensor()->at(1) == 0.5);
  CHECK_FALSE(diagnostics.has_errors());
  apply_class_weight(config, true, one_hot, diagnostics);  // has weights
  CHECK(diagnostics.num_errors() == 1);
  config.compile.loss[0].object = default_object(Category::kLoss, "BinaryCrossentropy");
  one_hot.sample_weight = nullptr;
  apply_class_weight(config, true, one_hot, diagnostics);  // three yes or no a sample
  CHECK(diagnostics.num_errors() == 2);
  config.fit.class_weight = {{"no", {2, {}}}, {"3", {2, {}}}};
  named.sample_weight = nullptr;
  config.compile.loss.clear();
  apply_class_weight(config, true, named, diagnostics);  // neither is a class
  CHECK(diagnostics.num_errors() == 4);
}

TEST_CASE("data without weights beside weighted data get weights of one") {
  Dataset weighted = dataset_of({1, 2});
  weighted.sample_weight =
      make_rows(tensor_of<double>(DType::kFloat32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}));
  Dataset plain = dataset_of({1, 2, 3});
  match_sample_weight(plain, weighted);
  CHECK(weighted.sample_weight->tensor()->at(7) == 8);
  match_sample_weight(weighted, plain);
  REQUIRE(plain.sample_weight);
  CHECK(plain.sample_weight->shape() == Shape{3, 4});
  CHECK(plain.sample_weight->tensor()->at(11) == 1);
}

}  // namespace
}  // namespace meshtrain
