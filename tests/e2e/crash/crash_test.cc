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

TEST_CASE("nor when saves are written while training goes on") {
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

TEST_CASE("nor when a killed run is cleaned up and goes on") {
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
TEST_CASE("a model that is saved under one name again and again is never lost") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = {"callbacks=[{ModelCheckpoint: {filepath: saved}}]",
                                         "checkpoint.every=never", "fit.epochs=3"},
                                .environment = {}})
              .exit_code == 0);
  Disk disk;
  bool named = false, certain = false;
  int replaced = 0, lost = 0;
  for (const Call& call : read_calls(folder.file("calls"))) {
    disk.apply(call);
    replaced += call.kind == 'X' && call.b == "run/saved" ? 1 : 0;
    named = named || call.b == "run/saved";
    certain = certain || (named && call.kind == 'F' && call.a == "run");
    for (const Bytes bytes : {Bytes::kKeep, Bytes::kLose, Bytes::kHalve, Bytes::kZero}) {
      for (const Names names : {Names::kKeep, Names::kLose, Names::kEven, Names::kOdd}) {
        fs::remove_all(folder.file("state"));
        if (certain) {
          write_state(disk.state(bytes, names), folder.file("state"));
          lost += verifies(folder.file("state/run/saved")) ? 0 : 1;
        }
      }
    }
  }
  CHECK(replaced == 2);
  CHECK(lost == 0);
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
