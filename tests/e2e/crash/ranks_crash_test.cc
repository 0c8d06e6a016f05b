// Runs of several processes: every state that a power cut may leave of all that they wrote, in the
// order in which they did; and each of them killed, or without room, in the middle of its writing.
#include <signal.h>

#include "crash/findings.h"
#include "ranks.h"
#include "support/sampled.h"

namespace meshtrain::crash {
namespace {

constexpr size_t kKillStride = test::kIsInstrumented ? 60 : 20;

// As many virtual devices as processes; each writes its part.
Recording of_size(int size, std::vector<std::string> more = {}) {
  Recording out{.more = {"--mesh", fmt::format("data={}", size), "--devices",
                         fmt::format("cpu:{}", size), "distribution.reductions=fixed"},
                .environment = {}};
  out.more.insert(out.more.end(), more.begin(), more.end());
  return out;
}

// All ranks under the recorder, which writes one list of their calls; `faulty` has a fault.
Result run_ranks(const FastFolder& folder, int size, const Recording& recording, int faulty = -1,
                 const std::string& fault = "") {
  std::vector<Rank> ranks(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    rank.environment = recorder_environment(folder);
    if (r == faulty) {
      rank.environment.push_back("MESHTRAIN_FAULT=" + fault);
    }
  }
  return run(as_ranks(size, recorded_args(recording), folder.file("work"), ranks), 120);
}

int64_t acknowledged(const FastFolder& folder) {
  Disk disk;
  for (const Call& call : read_calls(folder.file("calls"))) {
    if (call.kind == 'A') {
      disk.apply(call);
    }
  }
  return disk.acknowledged();
}

// Calls that rank `rank` alone makes in a whole run.
int calls_of(const FastFolder& folder, int size, int rank) {
  start_again(folder);
  std::vector<Rank> ranks(static_cast<size_t>(size));
  ranks[static_cast<size_t>(rank)].environment = recorder_environment(folder);
  REQUIRE(run(as_ranks(size, recorded_args(of_size(size)), folder.file("work"), ranks), 120)
              .exit_code == 0);
  return count_calls(folder);
}

TEST_CASE("no saved step of two or four processes is lost in any state after a power cut") {
  for (const int size : {2, 4}) {
    CAPTURE(size);
    FastFolder folder;
    const Result result = run_ranks(folder, size, of_size(size));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const Findings found = check_states(folder);
    MESSAGE(found.states << " states of " << found.saves << " saves");
    CHECK(found.saves >= 5);
    check_all_is_kept(found);
  }
}

TEST_CASE("nor when they write while training continues") {
  FastFolder folder;
  const Result result = run_ranks(folder, 2, of_size(2, {"checkpoint.async=true"}));
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const Findings found = check_states(folder);
  CHECK(found.saves >= 4);
  check_all_is_kept(found);
}

TEST_CASE("nor when processes that do not see the folder send what they would write") {
  for (const char* async : {"checkpoint.async=false", "checkpoint.async=true"}) {
    CAPTURE(async);
    FastFolder folder;
    fs::create_directory(folder.file("elsewhere"));
    std::vector<Rank> ranks(4);
    for (Rank& rank : ranks) {
      rank.environment = recorder_environment(folder);
    }
    ranks[1].before = ranks[3].before = "cd ../elsewhere";
    const Recording recording = of_size(4, {"checkpoint.gather=root", async});
    const Result result =
        run(as_ranks(4, recorded_args(recording), folder.file("work"), ranks), 120);
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(fs::is_empty(folder.file("elsewhere")));
    const Findings found = check_states(folder);
    CHECK(found.saves >= 4);
    check_all_is_kept(found);
  }
}

TEST_CASE(
    "with any process killed in its writing the newest or the one before loads and the run resumes "
    "to the same bits") {
  FastFolder folder;
  REQUIRE(run_ranks(folder, 2, of_size(2)).exit_code == 0);
  const auto expected = outcome(folder);
  for (const int rank : {1, 0}) {
    const int calls = calls_of(folder, 2, rank);
    REQUIRE(calls > 20);
    // Of the last four fifths, where there is something to lose.
    for (const size_t i : test::sampled(static_cast<size_t>(calls * 4 / 5), kKillStride)) {
      const int n = calls - 1 - static_cast<int>(i);
      CAPTURE(rank);
      CAPTURE(n);
      start_again(folder);
      const Result killed = run_ranks(folder, 2, of_size(2), rank, fmt::format("{}:KILL", n));
      CHECK(killed.exit_code != 0);
      const NewestCheckpoint newest = newest_checkpoint(folder.file("work/run/checkpoints"));
      CHECK(newest.damaged.empty());
      CHECK((newest.reader ? newest.reader->manifest().step : -1) >= acknowledged(folder));
      const Result rest = run_ranks(folder, 2, of_size(2, {"--resume"}));
      REQUIRE_MESSAGE(rest.exit_code == 0, rest.err);
      CHECK(outcome(folder) == expected);
    }
  }
}

TEST_CASE(
    "a full disk of one process fails the save for all with its name and the one before stays") {
  FastFolder folder;
  const int calls = calls_of(folder, 2, 1);
  const std::string late = fmt::format("{}+:ENOSPC", calls * 2 / 3);
  for (const std::string policy : {"continue", "stop"}) {
    CAPTURE(policy);
    start_again(folder);
    const Result result =
        run_ranks(folder, 2, of_size(2, {"checkpoint.on_error=" + policy}), 1, late);
    CHECK_MESSAGE(result.exit_code == 74, result.err);  // the last save fails, too
    CHECK(result.err.find("was not saved: rank 1 on host ") != std::string::npos);
    CHECK(result.err.find("No space left on device") != std::string::npos);
    CHECK((result.err.find("training continues") != std::string::npos) == (policy == "continue"));
    const NewestCheckpoint newest = newest_checkpoint(folder.file("work/run/checkpoints"));
    CHECK(newest.damaged.empty());
    REQUIRE(newest.reader != nullptr);
    CHECK(newest.reader->manifest().step >= acknowledged(folder));
  }
}

}  // namespace
}  // namespace meshtrain::crash
