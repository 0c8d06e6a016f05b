// A real run that is killed before file calls, and in which file calls fail: a sample of them, or
// every one.
#include <signal.h>

#include <chrono>

#include "checkpoint/reader.h"
#include "crash/recorded_run.h"
#include "support/instrumented.h"
#include "support/sampled.h"

namespace meshtrain::crash {
namespace {

// How far apart the calls are that are tried. With sanitizers it is a few: that nothing is lost is
// shown by the release build, that these ways out are clean by any of them.
constexpr size_t kStride = test::kIsInstrumented ? 40 : 10;

TEST_CASE("killed before any file call a run resumes to the same bits") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const auto expected = outcome(folder);
  const int calls = count_calls(folder);
  for (const size_t i : test::sampled(static_cast<size_t>(calls), kStride)) {
    const size_t n = i + 1;
    CAPTURE(n);
    start_again(folder);
    const Result killed = run_recorded(
        folder, {.more = {}, .environment = {fmt::format("MESHTRAIN_FAULT={}:KILL", n)}});
    REQUIRE(killed.exit_code == 128 + SIGKILL);
    Command command;
    command.args = {"train", "../tiny.yaml", "-o", "run", "-q", "--resume"};
    command.folder = folder.file("work");
    // Killed before metrics.jsonl was there: nothing of a run but its empty folder.
    if (!fs::exists(folder.file("work/run/metrics.jsonl"))) {
      fs::remove_all(folder.file("work/run"));
    }
    const Result rest = run(command);
    REQUIRE_MESSAGE(rest.exit_code == 0, rest.err);
    CHECK(outcome(folder) == expected);
  }
}

TEST_CASE("a failing call never takes the checkpoints before with it") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const int calls = count_calls(folder);
  const char* const kinds[] = {"ENOSPC", "EDQUOT", "EIO", "EACCES", "EROFS", "SHORT", "EINTR"};
  int refused = 0;
  for (const size_t i : test::sampled(static_cast<size_t>(calls), kStride)) {
    const size_t n = i + 1;
    // One kind of fault for each call, in turn; the next ones when the same call is met again.
    const size_t kind = (i + test::test_offset()) / kStride % std::size(kinds);
    for (size_t k = 0; k < std::size(kinds); ++k) {
      if (!test::runs_everything() && k != kind) {
        continue;
      }
      for (const char* stays : {"", "+"}) {
        const std::string fault = fmt::format("MESHTRAIN_FAULT={}{}:{}", n, stays, kinds[k]);
        CAPTURE(fault);
        start_again(folder);
        const Result result = run_recorded(folder, {.more = {}, .environment = {fault}});
        const bool harmless = kinds[k] == std::string("SHORT") || kinds[k] == std::string("EINTR");
        CHECK_MESSAGE((result.exit_code == 0 || (!harmless && result.exit_code == 74)), result.err);
        refused += result.exit_code == 74 ? 1 : 0;
        int64_t acknowledged = -1;
        if (fs::exists(folder.file("calls"))) {
          Disk disk;
          for (const Call& call : read_calls(folder.file("calls"))) {
            if (call.kind == 'A') {
              disk.apply(call);
            }
          }
          acknowledged = disk.acknowledged();
        }
        const NewestCheckpoint newest = newest_checkpoint(folder.file("work/run/checkpoints"));
        CHECK(newest.damaged.empty());
        CHECK((newest.reader ? newest.reader->manifest().step : -1) >= acknowledged);
      }
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("killed at random moments a run still ends with the same bits") {
  FastFolder folder;
  const std::vector<std::string> longer = {"fit.epochs=40", "checkpoint.every=3 steps",
                                           "checkpoint.async=true"};
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(run_recorded(folder, {.more = longer, .environment = {}}).exit_code == 0);
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - start;
  const auto expected = outcome(folder);
  start_again(folder);
  const int kills = test::runs_everything() ? 200 : test::kIsInstrumented ? 3 : 8;
  int killed = 0, ended = 0, in_training = 0;
  uint64_t random = 12345;
  // Kills before a first save prove little, and on a busy machine they are the most.
  const auto more_kills = [&] {
    return (killed < kills || in_training * 2 < kills) && killed < 20 * kills;
  };
  while (more_kills() || ended == 0) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    Command command;
    command.args = {"train", "../tiny.yaml", "-o", "run", "-q", "--resume"};
    command.args.insert(command.args.end(), longer.begin(), longer.end());
    command.folder = folder.file("work");
    if (more_kills()) {
      const double wait = 0.6 * whole.count() * static_cast<double>(random >> 40) / (1 << 24);
      command.watch = [wait](const std::string&, const std::string&, int pid) {
        usleep(static_cast<useconds_t>(wait));
        kill(pid, SIGKILL);
        return true;
      };
    }
    const Result result = run(command);
    if (result.exit_code == 128 + SIGKILL) {
      ++killed;
      const std::string checkpoints = folder.file("work/run/checkpoints");
      in_training += fs::exists(checkpoints) && !checkpoint_steps(checkpoints).empty() ? 1 : 0;
      if (!fs::exists(folder.file("work/run/metrics.jsonl"))) {
        fs::remove_all(folder.file("work/run"));
      }
      continue;
    }
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(outcome(folder) == expected);
    ++ended;
    start_again(folder);
  }
  MESSAGE(killed << " kills, " << in_training << " of them after a first save, " << ended
                 << " runs that came to their end");
  CHECK(in_training * 2 >= kills);
}

// The number of the first call of a kind on a path that holds all of `parts`.
int call_on(const FastFolder& folder, char kind, const std::vector<std::string>& parts) {
  int number = 0;
  for (const Call& call : read_calls(folder.file("calls"))) {
    number += call.kind == 'A' ? 0 : 1;
    if (call.kind == kind && std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
          return call.a.find(part) != std::string::npos;
        })) {
      return number;
    }
  }
  return -1;
}

TEST_CASE("a close that a signal interrupts has closed the file") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const auto expected = outcome(folder);
  const int close = call_on(folder, 'E', {"metrics.csv"});
  REQUIRE(close > 0);
  // Faults also count calls that are not written down, of which there are a few before.
  for (int n = close - 4; n < close + 8; ++n) {
    CAPTURE(n);
    start_again(folder);
    const Result result = run_recorded(
        folder, {.more = {}, .environment = {fmt::format("MESHTRAIN_FAULT={}:EINTR", n)}});
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(outcome(folder) == expected);
  }
}

TEST_CASE("a save that fails says why and training continues") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const auto expected = outcome(folder);
  struct Case {
    char kind;
    std::vector<std::string> on;
    const char *fails, *says;
  };
  std::vector<Case> cases = {
      {'W', {"tmp.000004.", "shard"}, "ENOSPC", "[E420] step 4 was not saved: cannot write `"},
      {'W', {"tmp.000004.", "manifest"}, "EDQUOT", "[E420] step 4 was not saved: cannot write `"},
      {'S', {"tmp.000004.", "shard"}, "EIO", "[E422] step 4 was not saved: cannot sync `"},
      {'E', {"tmp.000004.", "state.json"}, "EIO", "[E422] step 4 was not saved: cannot close `"},
      {'D', {"tmp.000004."}, "EACCES", "[E421] step 4 was not saved: cannot create `"},
      {'C', {"tmp.000004.", "layout"}, "EROFS", "[E421] step 4 was not saved: cannot create `"},
      {'R', {"tmp.000004."}, "EACCES", "[E421] step 4 was not saved: cannot rename to `"}};
  std::vector<int> calls;
  for (const Case& c : cases) {
    calls.push_back(call_on(folder, c.kind, c.on));
    REQUIRE(calls.back() > 0);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(cases[i].says);
    start_again(folder);
    const Result once = run_recorded(
        folder, {.more = {},
                 .environment = {fmt::format("MESHTRAIN_FAULT={}:{}", calls[i], cases[i].fails)}});
    CHECK(once.exit_code == 0);
    CHECK_MESSAGE(contains(once.err, cases[i].says), once.err);
    CHECK(contains(once.err, "; the last good one is 000002; training continues"));
    CHECK(
        contains(once.err, cases[i].fails == std::string("ENOSPC") ? " free); the last" : "; the"));
    CHECK(outcome(folder) == expected);
    start_again(folder);
    const Result stopped = run_recorded(
        folder, {.more = {"checkpoint.on_error=stop"},
                 .environment = {fmt::format("MESHTRAIN_FAULT={}:{}", calls[i], cases[i].fails)}});
    CHECK(stopped.exit_code == 74);
    // The same words, with the code in its place: "error[E420]: step 4 ...".
    std::string says = "error" + std::string(cases[i].says);
    says.insert(says.find(']') + 1, ":");
    CHECK_MESSAGE(contains(stopped.err, says), stopped.err);
    CHECK(newest_checkpoint(folder.file("work/run/checkpoints")).reader->manifest().step == 2);
  }
}

// The sync of the folder is the last call of a save: the checkpoint has its name by then.
TEST_CASE("a step whose name may not be on the disk is saved again") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const auto expected = outcome(folder);
  const std::vector<Call> calls = read_calls(folder.file("calls"));
  int number = 0, sync = -1;
  bool is_named = false;
  for (const Call& call : calls) {
    number += call.kind == 'A' ? 0 : 1;
    is_named = is_named || (call.kind == 'R' && contains(call.a, "tmp.000010."));
    sync = sync < 0 && is_named && call.kind == 'F' ? number : sync;
  }
  REQUIRE(sync > 0);
  const Result result = fail_sync(folder, {}, sync, "run/checkpoints");
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(contains(result.err, "[E422] step 10 was not saved"));
  CHECK(outcome(folder) == expected);
}

TEST_CASE(
    "three failing saves in a row end the run with exit code 74 and the last good one stays") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const int call = call_on(folder, 'W', {"tmp.000004.", "shard"});
  start_again(folder);
  const Result result = run_recorded(
      folder,
      {.more = {"fit.epochs=9"}, .environment = {fmt::format("MESHTRAIN_FAULT={}+:ENOSPC", call)}});
  CHECK(result.exit_code == 74);
  CHECK(contains(result.err, "[E420] step 4 was not saved"));
  CHECK(contains(result.err, "; the last good one is 000002"));
  CHECK(newest_checkpoint(folder.file("work/run/checkpoints")).reader->manifest().step == 2);
}

TEST_CASE("checkpoints whose folder is taken away end the run with exit code 74") {
  FastFolder folder;
  Command command;
  command.args = {"train", "../tiny.yaml", "-o", "run", "fit.epochs=1000000"};
  command.folder = folder.file("work");
  command.watch = [&](const std::string& out, const std::string&, int) {
    if (!contains(out, "Epoch 3/")) {
      return false;
    }
    std::error_code ignored;
    while (fs::exists(folder.file("work/run/checkpoints"))) {
      fs::remove_all(folder.file("work/run/checkpoints"), ignored);
    }
    return true;
  };
  const Result result = run(command);
  CHECK(result.exit_code == 74);
  CHECK_MESSAGE(contains(result.err, "[E421] step "), result.err);
  CHECK(contains(result.err, "No such file or directory"));
}

TEST_CASE("nothing but an unfinished save is nothing to resume") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const auto expected = outcome(folder);
  const int call = call_on(folder, 'S', {"tmp.000002.", "manifest"});
  REQUIRE(call > 0);
  start_again(folder);
  REQUIRE(run_recorded(folder,
                       {.more = {}, .environment = {fmt::format("MESHTRAIN_FAULT={}:KILL", call)}})
              .exit_code == 128 + SIGKILL);
  Command command;
  command.args = {"train", "../tiny.yaml", "-o", "run", "--resume=latest"};
  command.folder = folder.file("work");
  const Result latest = run(command);
  CHECK(latest.exit_code == 6);
  CHECK_MESSAGE(contains(latest.err, "error[E400]"), latest.err);
  CHECK_MESSAGE(contains(latest.err, "unfinished save of step 2"), latest.err);
  command.args.back() = "--resume";
  const Result fresh = run(command);
  CHECK_MESSAGE(fresh.exit_code == 0, fresh.err);
  CHECK_MESSAGE(contains(fresh.err, "[E401] an unfinished save of step 2 was removed"), fresh.err);
  CHECK(outcome(folder) == expected);
}

}  // namespace
}  // namespace meshtrain::crash
