// What is there in every state that a power cut may leave of a recorded run.
#pragma once

#include <map>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "crash/recorded_run.h"
#include "support/instrumented.h"
#include "support/sampled.h"

namespace meshtrain::crash {

// Of these numbers of states: without an acknowledged step, whose newest checkpoint is damaged, and
// without the best one that they name.
struct Findings {
  int states = 0, lost = 0, damaged = 0, best_lost = 0;
  int saves = 0;
};

inline bool verifies(const std::string& checkpoint) {
  try {
    CheckpointReader(checkpoint).verify();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether the checkpoint that the link `best` names, and the one that the newest has as the best,
// are there.
inline bool has_best(const std::string& checkpoints, const NewestCheckpoint& newest) {
  const std::string link = checkpoints + "/best";
  const int64_t step = newest.reader ? newest.reader->state().best_step : -1;
  return (!fs::is_symlink(link) || verifies(checkpoints + "/" + fs::read_symlink(link).string())) &&
         (step < 0 || verifies(checkpoints + "/" + checkpoint_name(step)));
}

// With sanitizers fewer calls are looked at; what is read there is the same.
inline constexpr size_t kStateStride = test::kIsInstrumented ? 20 : 4;

// Looks at every state of a sample of the prefixes of the recorded calls, or with 1 of all
// prefixes.
inline Findings check_states(const FastFolder& folder, size_t stride = kStateStride) {
  struct Found {
    int64_t newest = -1;
    bool is_damaged = false, has_best = false;
  };
  std::map<State, Found> seen;  // most calls change little, and most states were there before
  Findings out;
  Disk disk;
  const std::vector<Call> calls = read_calls(folder.file("calls"));
  REQUIRE(calls.size() > 20);
  size_t index = 0;
  for (const Call& call : calls) {
    disk.apply(call);
    out.saves += call.kind == 'A' ? 1 : 0;
    if (!test::is_sampled(index++, stride)) {
      continue;
    }
    for (const Bytes bytes : {Bytes::kKeep, Bytes::kLose, Bytes::kHalve, Bytes::kZero}) {
      for (const Names names : {Names::kKeep, Names::kLose, Names::kEven, Names::kOdd}) {
        const auto [found, is_new] = seen.try_emplace(disk.state(bytes, names));
        if (is_new) {
          fs::remove_all(folder.file("state"));
          write_state(found->first, folder.file("state"));
          const std::string checkpoints = folder.file("state/run/checkpoints");
          const NewestCheckpoint newest = newest_checkpoint(checkpoints);
          found->second = {newest.reader ? newest.reader->manifest().step : -1,
                           !newest.damaged.empty(), has_best(checkpoints, newest)};
        }
        ++out.states;
        out.damaged += found->second.is_damaged ? 1 : 0;
        out.best_lost += found->second.has_best ? 0 : 1;
        out.lost += found->second.newest < disk.acknowledged() ? 1 : 0;
      }
    }
  }
  return out;
}

inline void check_all_is_kept(const Findings& found) {
  CHECK(found.lost == 0);
  CHECK(found.damaged == 0);
  CHECK(found.best_lost == 0);
}

}  // namespace meshtrain::crash
