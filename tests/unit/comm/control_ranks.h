// Ranks of a run played by threads, each with a heartbeat monitor of its own; leaving is written
// down and not done.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/diagnostic.h"
#include "comm/heartbeat_monitor.h"
#include "support/thread_group.h"

namespace meshtrain::test {

struct RankEnd {
  int exit_code = -1;   // what it left with; -1: it did not have to
  std::string printed;  // to standard error
};

inline HeartbeatOptions test_options() {
  HeartbeatOptions options;
  options.silence_seconds = 60;  // nothing here is silent, however busy the machine
  options.collective_seconds = 60;
  options.join_seconds = 60;
  options.last_resort_seconds = 0;  // the tests' own process is not to be killed
  options.resume_command = "the same command with --resume";
  return options;
}

using RankBody = std::function<void(HeartbeatMonitor& monitor, ProcessGroup& group)>;

// What became of each rank after `body`, in which a rank that leaves gets an Error.
inline std::vector<RankEnd> run_ranks(int size, const HeartbeatOptions& options,
                                      const RankBody& body) {
  std::vector<RankEnd> rank_ends(static_cast<size_t>(size));
  std::mutex mutex;
  run_as_processes(size, [&](std::shared_ptr<ThreadGroup> group) {
    RankEnd& end = rank_ends[static_cast<size_t>(group->rank())];
    HeartbeatOptions own = options;
    own.print = [&](std::string_view text) {
      const std::lock_guard lock(mutex);
      end.printed += text;
    };
    own.exit = [&](int code) {
      const std::lock_guard lock(mutex);
      end.exit_code = code;
    };
    try {
      HeartbeatMonitor monitor(*group, own);
      try {
        body(monitor, *group);
      } catch (const RuntimeFailure&) {  // it leaves
      }
    } catch (const ConfigError& error) {
      const std::lock_guard lock(mutex);
      end.exit_code = static_cast<int>(error.exit_code());
      end.printed += error.what();
    }
  });
  return rank_ends;
}

inline std::vector<int> exit_codes(const std::vector<RankEnd>& rank_ends) {
  std::vector<int> codes;
  for (const RankEnd& end : rank_ends) {
    codes.push_back(end.exit_code);
  }
  return codes;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Waits for a monitor to end this rank.
[[noreturn]] inline void wait_for_the_end(HeartbeatMonitor& monitor) {
  monitor.all_gather(fmt::format("only of rank {}", monitor.rank()), "");
  throw InternalError("another rank gave it");
}

// The same, by a rank that the monitor does not see waiting.
[[noreturn]] inline void be_busy_until_the_end(HeartbeatMonitor& monitor) {
  while (!monitor.aborting()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  wait_for_the_end(monitor);
}

}  // namespace meshtrain::test
