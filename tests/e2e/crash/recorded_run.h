// A small run under the recorder.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "command.h"
#include "crash/crash_states.h"
#include "outcome.h"

namespace meshtrain::crash {

namespace fs = std::filesystem;

inline constexpr const char* kConfig = R"(name: tiny
seed: 3
distribution: {device_mesh: {shape: [2], axis_names: [data], devices: "cpu:2"}, zero: 1}
data:
  train: {source: random, samples: 20, shape: [4], classes: 3, seed: 1}
  validation: {source: random, samples: 8, shape: [4], classes: 3, seed: 2}
model:
  layers:
    - Input: {shape: [4]}
    - Dense: {units: 4, activation: relu}
    - Dropout: 0.2
    - Dense: {units: 3}
compile:
  optimizer: {Adam: {learning_rate: 0.01}}  # the second epoch is the best
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 4, epochs: 2}
checkpoint: {every: 2 steps, keep: 2, async: false}
evaluate: {on: none}
)";

// In memory where there is such a place: syncing a disk for each of thousands of states is slow.
class FastFolder {
 public:
  FastFolder() {
    std::string name = fs::is_directory("/dev/shm") && access("/dev/shm", W_OK) == 0
                           ? "/dev/shm/meshtrain-crash-XXXXXX"
                           : "/tmp/meshtrain-crash-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fs::create_directory(file("work"));
    std::ofstream(file("tiny.yaml")) << kConfig;
  }
  ~FastFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  FastFolder(const FastFolder&) = delete;
  FastFolder& operator=(const FastFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct Recording {
  std::vector<std::string> more;         // arguments
  std::vector<std::string> environment;  // of the recorder
};

// Of meshtrain as run_recorded() runs it in `folder`.
inline std::vector<std::string> recorded_args(const Recording& recording) {
  std::vector<std::string> args = {"train", "../tiny.yaml", "-o", "run", "-v"};
  args.insert(args.end(), recording.more.begin(), recording.more.end());
  return args;
}

inline std::vector<std::string> recorder_environment(const FastFolder& folder) {
  // AddressSanitizer wants to be the first library, but it does without.
  return {"ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0", "LD_PRELOAD=" MESHTRAIN_RECORDER,
          "MESHTRAIN_RECORD_FOLDER=" + folder.file("work"),
          "MESHTRAIN_RECORD=" + folder.file("calls")};
}

// meshtrain train in `work` below the folder, under the recorder.
inline Result run_recorded(const FastFolder& folder, const Recording& recording) {
  Command command;
  command.args = recorded_args(recording);
  command.folder = folder.file("work");
  command.environment = recorder_environment(folder);
  command.environment.insert(command.environment.end(), recording.environment.begin(),
                             recording.environment.end());
  return run(command);
}

inline void start_again(const FastFolder& folder) {
  fs::remove_all(folder.file("work"));
  fs::create_directory(folder.file("work"));
  fs::remove(folder.file("calls"));
}

// A run in which the sync of a folder at the end of a save fails: `number` is that of the call, but
// faults also count calls that are not written down, of which there are some before.
inline Result fail_sync(const FastFolder& folder, const std::vector<std::string>& more, int number,
                        const std::string& synced) {
  Result result;
  for (int n = number; n < number + 60; ++n) {
    start_again(folder);
    result = run_recorded(
        folder, {.more = more, .environment = {fmt::format("MESHTRAIN_FAULT={}:EIO", n)}});
    if (contains(result.err, "was not saved: cannot sync `" + synced + "`")) {
      return result;
    }
  }
  FAIL("no sync of " << synced << " failed: " << result.err);
  return result;
}

inline Outcome outcome(const FastFolder& folder) {
  return outcome_of(folder.file("work/run"));
}

// Calls that a whole run makes.
inline int count_calls(const FastFolder& folder) {
  int count = 0;
  for (const Call& call : read_calls(folder.file("calls"))) {
    count += call.kind == 'A' ? 0 : 1;
  }
  return count;
}

}  // namespace meshtrain::crash
