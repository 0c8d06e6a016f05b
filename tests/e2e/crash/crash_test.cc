// A real run and a power cut: every state that it may leave. With a broken variant that the checks
// must find.
#include <signal.h>

#include "crash/findings.h"

namespace meshtrain::crash {
namespace {

TEST_CASE("no saved step is lost in any state that a power cut may leave") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const Findings found = check_states(folder);
  MESSAGE(found.states << " states of " << found.saves << " saves");
  CHECK(found.saves >= 5);
  check_all_is_kept(found);
}

TEST_CASE("nor when saves are written while training continues") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = {"checkpoint.async=true"}, .environment = {}}).exit_code ==
          0);
  const Findings found = check_states(folder);
  CHECK(found.saves >= 5);
  check_all_is_kept(found);
}

TEST_CASE("nor when every step is saved and one save follows upon the other") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = {"checkpoint.async=true", "checkpoint.every=1 steps"},
                                .environment = {}})
              .exit_code == 0);
  const Findings found = check_states(folder);
  CHECK(found.saves >= 8);
  check_all_is_kept(found);
}

TEST_CASE("nor when a killed run is cleaned up and resumes") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const int calls = count_calls(folder);
  for (const int percent : {35, 55, 75}) {
    CAPTURE(percent);
    start_again(folder);
    const std::string fault = fmt::format("MESHTRAIN_FAULT={}:KILL", calls * percent / 100);
    REQUIRE(run_recorded(folder, {.more = {}, .environment = {fault}}).exit_code == 128 + SIGKILL);
    REQUIRE(run_recorded(folder, {.more = {"--resume"}, .environment = {}}).exit_code == 0);
    const Findings found = check_states(folder);
    CHECK(found.saves >= 4);
    check_all_is_kept(found);
  }
}

// A model saved over the one before, under one name, is there in every state.
const std::vector<std::string> kModelAgain = {"callbacks=[{ModelCheckpoint: {filepath: saved}}]",
                                              "checkpoint.every=never", "fit.epochs=3"};

struct Replaced {
  int times = 0;
  int lost = 0;         // states after a power cut without a whole model
  int first_sync = -1;  // number of the call after the first exchange
};

Replaced replaced_models(const FastFolder& folder) {
  Disk disk;
  bool named = false, certain = false;
  int replaced = 0, lost = 0, number = 0, first_sync = -1;
  size_t index = 0;
  for (const Call& call : read_calls(folder.file("calls"))) {
    disk.apply(call);
    number += call.kind == 'A' ? 0 : 1;
    first_sync = first_sync < 0 && replaced > 0 && call.kind == 'F' ? number : first_sync;
    replaced += call.kind == 'X' && call.b == "run/saved" ? 1 : 0;
    named = named || call.b == "run/saved";
    certain = certain || (named && call.kind == 'F' && call.a == "run");
    if (!certain || !test::is_sampled(index++, kStateStride)) {
      continue;
    }
    for (const Bytes bytes : {Bytes::kKeep, Bytes::kLose, Bytes::kHalve, Bytes::kZero}) {
      for (const Names names : {Names::kKeep, Names::kLose, Names::kEven, Names::kOdd}) {
        fs::remove_all(folder.file("state"));
        write_state(disk.state(bytes, names), folder.file("state"));
        lost += verifies(folder.file("state/run/saved")) ? 0 : 1;
      }
    }
  }
  return {replaced, lost, first_sync};
}

TEST_CASE("a model that is saved under one name again and again is never lost") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = kModelAgain, .environment = {}}).exit_code == 0);
  const Replaced all = replaced_models(folder);
  CHECK(all.times == 2);
  CHECK(all.lost == 0);
  // Nor when the disk does not say that it knows the new name.
  fail_sync(folder, kModelAgain, all.first_sync, "run");
  const Replaced again = replaced_models(folder);
  CHECK(again.times > 0);
  CHECK(again.lost == 0);
}

TEST_CASE("a program that does not sync folders or anything is found out") {
  int best_lost = 0;  // of which kind depends on the order of the names
  for (const char* kind : {"folders", "all"}) {
    CAPTURE(kind);
    FastFolder folder;
    REQUIRE(run_recorded(folder,
                         {.more = {}, .environment = {std::string("MESHTRAIN_UNSYNCED=") + kind}})
                .exit_code == 0);
    const Findings found = check_states(folder, 1);
    CHECK(found.lost > 0);
    best_lost += found.best_lost;
  }
  CHECK(best_lost > 0);
}

}  // namespace
}  // namespace meshtrain::crash
