// State that the thread of a HeartbeatMonitor shares with its callers.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_exit.h"
#include "comm/text_gather.h"
#include "comm/watchdog.h"

namespace meshtrain {

// The hashes of the newest losses of rank 0, by step: one thread sets them, another one reads.
class LossHistory {
 public:
  void set(int64_t step, uint64_t hash);
  // False for a step whose hash is not there, not yet or no more.
  bool differs(int64_t step, uint64_t hash) const;

 private:
  struct Entry {
    std::atomic<int64_t> begun{0}, done{0};
    std::atomic<uint64_t> hash{0};
  };
  static size_t place(int64_t step) { return static_cast<size_t>(step) % kEntries; }

  static constexpr size_t kEntries = 1024;
  std::array<Entry, kEntries> entries_;
};

// Hooks that run when the processes must exit.
class AbortHooks {
 public:
  uint64_t add(std::function<void()> hook);  // its number
  void remove(uint64_t id);                  // waits for a hook that is running
  // All, newest first; `report` gets the message of one that throws.
  void run(const std::function<void(const char* problem)>& report);

 private:
  std::mutex mutex_;  // held while hooks run
  uint64_t last_id_ = 0;
  std::vector<std::pair<uint64_t, std::function<void()>>> hooks_;
};

// Written by callers and by the thread; `mutex` guards all but what guards itself.
struct MonitorState {
  struct Announced {
    uint64_t id = 0;
    std::string what;
    double since = 0, limit = 0;
  };

  MonitorState();
  ~MonitorState();
  void wake() const;  // the thread
  // By the thread, for callers that wait.
  void deliver(const std::string& key, std::vector<std::string> texts);
  void set_finished();
  void set_left(int exit_code);

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t last_id = 0;
  std::vector<GatherRequest> gathers;  // for the thread
  std::optional<RankFailure> failure;  // for the thread
  bool finish = false, stop = false;   // for the thread
  std::vector<Announced> announcements;
  std::map<std::string, std::deque<std::vector<std::string>>> gathered;  // by key, for callers
  bool finished = false;    // all ranks have called finish()
  std::optional<int> left;  // with this exit code, where leaving returns (tests)
  KillTimer last_resort;

  AbortHooks hooks;
  LossHistory losses;
  std::atomic<int64_t> last_checkpoint{0};
  int wake_fd = -1;
};

}  // namespace meshtrain
