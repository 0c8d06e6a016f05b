// When a run saves and stops, without a disk: positions, clocks, signals and results are arguments.
#include "train/save_policy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/interval.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::caught;
using WhenBusy = SavePolicy::WhenBusy;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kNoStep = std::numeric_limits<int64_t>::max();

// A config whose interval has no place in a file, as the default one.
Config config_with(const char* every, int64_t epochs = 100) {
  Config config;
  config.checkpoint.every = {parse_interval(every).value(), {}};
  config.fit.epochs.value = epochs;
  return config;
}

SourceLoc place_of_every() {
  return {std::make_shared<SourceFile>(SourceFile{"a.yaml", "every: epoch\n"}), 1, 8, 5};
}

SavePolicy policy_of(const Config& config, bool larger_is_better = false) {
  return SavePolicy(config, {"val_loss", larger_is_better}, 0);
}

// An epoch with this value ends and is saved, or its save fails.
void run_epoch(SavePolicy& policy, int64_t epoch, double value, bool is_saved = true) {
  policy.end_epoch(epoch, {{"val_loss", value}});
  policy.take_epoch_save(epoch);
  policy.mark_best(epoch);
  TrainState state{.position = {.step = epoch, .epoch = epoch}};
  state.best = policy.best().value;
  state.best_step = policy.best().step;
  policy.end_save(state, is_saved, 0, 0);
}

void end_save(SavePolicy& policy, const TrainPosition& at, bool is_saved = true, double now = 0,
              double seconds = 0) {
  policy.end_save({.position = at}, is_saved, now, seconds);
}

bool is_pinned(const SavePolicy& policy, int64_t step) {
  const std::vector<int64_t> steps = policy.pinned();
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

TEST_CASE("an interval of steps is due at its multiples, once") {
  const Config config = config_with("4 steps");
  SavePolicy policy = policy_of(config);
  CHECK(policy.steps_until_due(0) == 4);
  CHECK(policy.steps_until_due(3) == 1);
  CHECK(policy.steps_until_due(4) == 4);
  policy.end_step(3, 1);
  CHECK(!policy.take_step_save());
  policy.end_step(4, 2);
  CHECK(policy.is_due());
  CHECK(policy.take_step_save());
  CHECK(!policy.is_due());
  CHECK(!policy.take_step_save());
}

TEST_CASE("a save that is due at the epoch's last step is taken at the epoch's end") {
  const Config config = config_with("4 steps");
  SavePolicy policy = policy_of(config);
  policy.end_step(8, 1);
  policy.end_epoch(1, {});
  CHECK(policy.take_epoch_save(1) == WhenBusy::kSkip);
  CHECK(!policy.take_epoch_save(1));
  policy.end_step(9, 2);
  policy.end_epoch(2, {});
  CHECK(!policy.take_epoch_save(2));
}

TEST_CASE("an interval of epochs is due at the end of each so many") {
  const Config config = config_with("3 epochs");
  SavePolicy policy = policy_of(config);
  CHECK(policy.steps_until_due(7) == kNoStep);
  std::vector<int64_t> saved;
  for (int64_t epoch = 1; epoch <= 7; ++epoch) {
    policy.end_step(epoch * 10, 1);
    CHECK(!policy.is_due());
    policy.end_epoch(epoch, {{"loss", 1.0}});
    if (policy.take_epoch_save(epoch)) {
      saved.push_back(epoch);
    }
  }
  CHECK(saved == std::vector<int64_t>{3, 6});
}

TEST_CASE("an interval of time counts from the beginning of fit and from the end of each save") {
  const Config config = config_with("10 s");
  SavePolicy policy = policy_of(config);
  policy.begin(100);
  CHECK(policy.steps_until_due(7) == kNoStep);
  policy.end_step(1, 109.5);
  CHECK(!policy.is_due());
  policy.end_step(2, 110);
  CHECK(policy.take_step_save());
  end_save(policy, {.step = 2}, true, 113, 3);
  policy.end_step(3, 122);
  CHECK(!policy.is_due());
  policy.end_step(4, 123);
  CHECK(policy.is_due());
  CHECK(policy.take_step_save());
  end_save(policy, {.step = 4}, false, 130, 3);  // a failed one ends as well
  policy.end_step(5, 139);
  CHECK(!policy.is_due());
}

TEST_CASE("a request is due like an interval, and waits for a running save at the epoch's end") {
  const Config config = config_with("never");
  SavePolicy policy = policy_of(config);
  policy.request();
  CHECK(policy.is_due());
  CHECK(policy.take_step_save());
  CHECK(!policy.is_due());
  policy.request();
  policy.end_epoch(1, {});
  CHECK(policy.take_epoch_save(1) == WhenBusy::kWait);
  CHECK(!policy.is_due());
}

TEST_CASE("an epoch's save is skipped beside a running one where nobody wrote the interval") {
  Config config = config_with("epoch");
  {
    SavePolicy policy = policy_of(config);
    policy.end_epoch(1, {});
    CHECK(policy.take_epoch_save(1) == WhenBusy::kSkip);
    policy.end_epoch(2, {{"val_loss", 0.5}});  // the best so far
    CHECK(policy.take_epoch_save(2) == WhenBusy::kWait);
    policy.mark_best(2);
    policy.end_epoch(100, {{"val_loss", 0.6}});  // the last one
    CHECK(policy.take_epoch_save(100) == WhenBusy::kWait);
  }
  config.checkpoint.every.loc = place_of_every();
  SavePolicy policy = policy_of(config);
  policy.end_epoch(1, {});
  CHECK(policy.take_epoch_save(1) == WhenBusy::kWait);
}

TEST_CASE("the last epoch is saved whatever the interval, and the end of fit where it is not yet") {
  const Config config = config_with("1000 steps", 2);
  SavePolicy policy = policy_of(config);
  policy.end_epoch(1, {});
  CHECK(!policy.take_epoch_save(1));
  CHECK(policy.saves_at_end(20));
  policy.end_epoch(2, {});
  CHECK(policy.take_epoch_save(2) == WhenBusy::kWait);
  end_save(policy, {.step = 20, .epoch = 2});
  CHECK(policy.last_saved() == 20);
  CHECK(!policy.saves_at_end(20));
  CHECK(!policy.saves_at_end(0));  // nothing was trained
}

TEST_CASE("every: never saves on request only") {
  const Config config = config_with("never", 1);
  SavePolicy policy = policy_of(config);
  policy.begin(0);
  policy.end_step(1000, 1e6);
  CHECK(!policy.is_due());
  CHECK(policy.steps_until_due(1000) == kNoStep);
  policy.end_epoch(1, {{"val_loss", 0.5}});
  CHECK(!policy.take_epoch_save(1));  // the best one and the last one
  CHECK(!policy.saves_at_end(1000));
}

TEST_CASE("the smallest value is the best, or the largest") {
  for (const bool larger : {false, true}) {
    const double sign = larger ? -1 : 1;
    const Config config = config_with("epoch");
    SavePolicy policy = policy_of(config, larger);
    CHECK(policy.best().step == -1);
    run_epoch(policy, 1, sign * 3);
    CHECK(policy.best().step == 1);
    run_epoch(policy, 2, sign * 2);
    CHECK(policy.best().step == 2);
    CHECK(policy.saved_best().step == 2);
    run_epoch(policy, 3, sign * 2);  // equal is not better
    run_epoch(policy, 4, sign * 5);
    run_epoch(policy, 5, kNan);
    CHECK(policy.best().step == 2);
    CHECK(policy.best().value == sign * 2);
    run_epoch(policy, 6, sign * -1e300);
    CHECK(policy.best().step == 6);
  }
}

TEST_CASE("NaN and other logs are never the best") {
  const Config config = config_with("epoch");
  SavePolicy policy = policy_of(config);
  policy.end_epoch(1, {{"loss", 1.0}, {"val_loss", kNan}});
  CHECK(!policy.mark_best(1));
  CHECK(policy.best().step == -1);
  policy.end_epoch(2, {{"val_loss", std::numeric_limits<double>::infinity()}});
  CHECK(policy.mark_best(2));
  CHECK(!policy.mark_best(2));
}

TEST_CASE("a step saved during the validation that finds it the best becomes the best") {
  const Config config = config_with("epoch");
  SavePolicy policy = policy_of(config);
  end_save(policy, {.step = 5});
  policy.end_epoch(1, {{"val_loss", 0.5}});
  CHECK(policy.mark_best(5));
  CHECK(policy.saved_best().step == 5);
  CHECK(policy.saved_best().value == 0.5);
}

TEST_CASE("the best whose save fails gives way to the best that is saved") {
  const Config config = config_with("epoch");
  SavePolicy policy = policy_of(config);
  run_epoch(policy, 1, 3);
  run_epoch(policy, 2, 2, false);
  CHECK(policy.best().step == 1);
  CHECK(policy.best().value == 3);
  run_epoch(policy, 3, 2.5);  // better than what is saved
  CHECK(policy.best().step == 3);
  CHECK(policy.saved_best().step == 3);
  // While a save of the best runs, a better one comes: its value stays when the save fails.
  policy.end_epoch(4, {{"val_loss", 2.0}});
  policy.mark_best(4);
  policy.end_epoch(5, {{"val_loss", 1.0}});
  policy.end_save({.position = {.step = 4}, .best = 2.0, .best_step = 4}, false, 0, 0);
  CHECK(policy.best().step == 3);
  CHECK(policy.best().value == 1.0);
  CHECK(policy.mark_best(5));
  CHECK(policy.best().step == 5);
}

TEST_CASE("a resumed run has the best value and the checkpoints of before") {
  const Config config = config_with("epoch");
  SavePolicy policy = policy_of(config);
  policy.resume_best({0.25, 7});
  policy.pin({4, 8});
  policy.resume_at(9);
  CHECK(policy.last_saved() == 9);
  CHECK(!policy.saves_at_end(9));
  policy.end_epoch(1, {{"val_loss", 0.5}});
  CHECK(!policy.mark_best(10));
  for (const int64_t step : {4, 7, 8, 9}) {
    CHECK(is_pinned(policy, step));
  }
  CHECK(!is_pinned(policy, 10));
}

TEST_CASE("the checkpoint that `best` names stays until its successor is saved") {
  const Config config = config_with("epoch");
  SavePolicy policy = policy_of(config);
  run_epoch(policy, 1, 3);
  policy.end_epoch(2, {{"val_loss", 2.0}});
  policy.mark_best(2);
  CHECK(is_pinned(policy, 1));
  CHECK(is_pinned(policy, 2));
  policy.end_save({.position = {.step = 2}, .best = 2.0, .best_step = 2}, true, 0, 0);
  CHECK(!is_pinned(policy, 1));
  CHECK(is_pinned(policy, 2));
}

TEST_CASE("keep_every pins saved steps, or the ends of epochs") {
  Config config = config_with("epoch");
  config.checkpoint.keep_every = {parse_interval("200 steps").value(), {}};
  {
    SavePolicy policy = policy_of(config);
    end_save(policy, {.step = 200});
    end_save(policy, {.step = 300});
    end_save(policy, {.step = 400}, false);
    CHECK(is_pinned(policy, 200));
    CHECK(!is_pinned(policy, 300));
    CHECK(!is_pinned(policy, 400));
  }
  config.checkpoint.keep_every = {parse_interval("2 epochs").value(), {}};
  {
    const SavePolicy policy = policy_of(config);
    CHECK(policy.is_kept({.step = 17, .epoch = 2}));
    CHECK(!policy.is_kept({.step = 17, .epoch = 3}));
    CHECK(!policy.is_kept({.step = 18, .epoch = 2, .batch = 1}));
  }
  {  // the save of an epoch that is kept waits for the one before
    SavePolicy policy = policy_of(config);
    const auto when_busy = [&](const TrainPosition& at) {
      policy.end_epoch(at.epoch, {});
      return policy.take_epoch_save(at.epoch, policy.is_kept(at));
    };
    CHECK(when_busy({.step = 8, .epoch = 1}) == WhenBusy::kSkip);
    CHECK(when_busy({.step = 16, .epoch = 2}) == WhenBusy::kWait);
  }
  config.checkpoint.keep_every = {};
  CHECK(!policy_of(config).is_kept({}));
}

TEST_CASE("run.max_time leaves time for two saves and two of the longest steps") {
  Config config = config_with("never");
  config.run.max_time.value = 100;
  SavePolicy policy(config, {}, 1000);
  policy.begin(1000);
  CHECK(!policy.must_stop(1099.9, 0));
  CHECK(policy.must_stop(1100, 0));
  policy.end_step(1, 1004);  // 4 s
  policy.end_step(2, 1005);
  CHECK(policy.longest_step() == 4);
  CHECK(!policy.must_stop(1091.9, 0));
  CHECK(policy.must_stop(1092, 0));
  end_save(policy, {.step = 2}, true, 1010, 5);
  policy.skip_time(1010);
  policy.end_step(3, 1011);  // of which no second was the save's
  CHECK(policy.longest_step() == 4);
  end_save(policy, {.step = 3}, true, 1012, 1);
  CHECK(!policy.must_stop(1081.9, 0));
  CHECK(policy.must_stop(1082, 0));
}

TEST_CASE("without run.max_time only a signal stops") {
  const Config config = config_with("epoch");
  const SavePolicy policy = policy_of(config);
  CHECK(!policy.must_stop(1e12, 0));
  CHECK(policy.must_stop(0, 15));
}

TEST_CASE("three failures in a row end the run, or the first one with on_error: stop") {
  Config config = config_with("epoch");
  SavePolicy policy = policy_of(config);
  for (const bool is_saved : {false, false, true, false, false}) {
    end_save(policy, {.step = 1}, is_saved);
    CHECK(!policy.gives_up());
  }
  end_save(policy, {.step = 2}, false);
  CHECK(policy.gives_up());
  CHECK(policy.last_saved() == 1);
  config.checkpoint.on_error.value = SaveFailure::kStop;
  SavePolicy strict = policy_of(config);
  CHECK(!strict.gives_up());
  end_save(strict, {.step = 1}, false);
  CHECK(strict.gives_up());
}

TEST_CASE(
    "the monitored log is the config's, else the validation's loss, in the mode's direction") {
  const auto larger = [](const std::string& log) -> std::optional<bool> {
    return log == "accuracy"   ? std::optional(true)
           : log == "val_loss" ? std::optional(false)
                               : std::nullopt;
  };
  Config config;
  CHECK(monitored_log(config, larger).name.empty());
  config.fit.validation_split.value = 0.5;
  CHECK(monitored_log(config, larger).name == "val_loss");
  CHECK(!monitored_log(config, larger).larger_is_better);
  config.checkpoint.monitor.value = "accuracy";
  CHECK(monitored_log(config, larger).name == "accuracy");
  CHECK(monitored_log(config, larger).larger_is_better);
  config.checkpoint.mode.value = MonitorMode::kMin;
  CHECK(!monitored_log(config, larger).larger_is_better);
  config.checkpoint.monitor.value = "another";
  CHECK(monitored_log(config, larger).name == "another");
  config.checkpoint.mode.value = MonitorMode::kAuto;
  CHECK(caught([&] { monitored_log(config, larger); }).code == "E113");
}

}  // namespace
}  // namespace meshtrain
