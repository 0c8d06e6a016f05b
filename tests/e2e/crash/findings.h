// What is there in every state that a power cut may leave of a recorded run.
#pragma once

#include <map>

#include "crash/recorded_run.h"
#include "support/instrumented.h"
#include "train/checkpoint/reader.h"

namespace meshtrain::crash {

struct Findings {
  int states = 0, lost = 0, damaged = 0, saves = 0;
};

// With sanitizers every fifth call is looked at; what is read there is the same.
inline constexpr int kStride = test::kIsInstrumented ? 5 : 1;

// Looks at every state of every prefix of the recorded calls, or of each `stride`-th.
inline Findings check_states(const FastFolder& folder, int stride = kStride) {
  struct Newest {
    int64_t step = -1;
    bool is_damaged = false;
  };
  std::map<State, Newest> seen;  // most calls change little, and most states were there before
  Findings out;
  Disk disk;
  const std::vector<Call> calls = read_calls(folder.file("calls"));
  REQUIRE(calls.size() > 20);
  int index = 0;
  for (const Call& call : calls) {
    disk.apply(call);
    out.saves += call.kind == 'A' ? 1 : 0;
    if (index++ % stride != 0) {
      continue;
    }
    for (const Bytes bytes : {Bytes::kKeep, Bytes::kLose, Bytes::kHalve, Bytes::kZero}) {
      for (const Names names : {Names::kKeep, Names::kLose, Names::kEven, Names::kOdd}) {
        const auto [found, is_new] = seen.try_emplace(disk.state(bytes, names));
        if (is_new) {
          fs::remove_all(folder.file("state"));
          write_state(found->first, folder.file("state"));
          const NewestCheckpoint newest = newest_checkpoint(folder.file("state/run/checkpoints"));
          found->second = {newest.reader ? newest.reader->manifest().step : -1,
                           !newest.damaged.empty()};
        }
        ++out.states;
        out.damaged += found->second.is_damaged ? 1 : 0;
        out.lost += found->second.step < disk.acknowledged() ? 1 : 0;
      }
    }
  }
  return out;
}

}  // namespace meshtrain::crash
