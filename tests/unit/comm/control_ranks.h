// Ranks of a run played by threads, each with a control channel of its own; leaving is written down
// and not done.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/diagnostic.h"
#include "comm/control_channel.h"
#include "support/thread_group.h"

namespace meshtrain::test {

struct Ending {
  int exit_code = -1;   // what it left with; -1: it did not have to
  std::string printed;  // to standard error
};

inline ControlOptions test_options() {
  ControlOptions options;
  options.silence_seconds = 60;  // nothing here is silent, however busy the machine
  options.collective_seconds = 60;
  options.join_seconds = 60;
  options.last_resort_seconds = 0;  // the tests' own process is not to be killed
  options.resume_command = "the same command with --resume";
  return options;
}

using RankBody = std::function<void(ControlChannel& control, ProcessGroup& group)>;

// What became of each rank after `body`, in which a rank that leaves gets an Error.
inline std::vector<Ending> run_ranks(int size, const ControlOptions& options,
                                     const RankBody& body) {
  std::vector<Ending> endings(static_cast<size_t>(size));
  std::mutex mutex;
  run_as_processes(size, [&](std::shared_ptr<ThreadGroup> group) {
    Ending& ending = endings[static_cast<size_t>(group->rank())];
    ControlOptions own = options;
    own.print = [&](std::string_view text) {
      const std::lock_guard lock(mutex);
      ending.printed += text;
    };
    own.exit = [&](int code) {
      const std::lock_guard lock(mutex);
      ending.exit_code = code;
    };
    try {
      ControlChannel control(*group, own);
      try {
        body(control, *group);
      } catch (const RuntimeFailure&) {  // it leaves
      }
    } catch (const ConfigError& error) {
      const std::lock_guard lock(mutex);
      ending.exit_code = static_cast<int>(error.exit_code());
      ending.printed += error.what();
    }
  });
  return endings;
}

inline std::vector<int> exit_codes(const std::vector<Ending>& endings) {
  std::vector<int> codes;
  for (const Ending& ending : endings) {
    codes.push_back(ending.exit_code);
  }
  return codes;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Waits for a channel to end this rank.
[[noreturn]] inline void wait_for_the_end(ControlChannel& control) {
  control.all_gather(fmt::format("only of rank {}", control.rank()), "");
  throw InternalError("another rank gave it");
}

// The same, by a rank that the channel does not see waiting.
[[noreturn]] inline void be_busy_until_the_end(ControlChannel& control) {
  while (!control.aborting()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  wait_for_the_end(control);
}

}  // namespace meshtrain::test
