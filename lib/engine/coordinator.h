// Coordinator: decisions that the processes of a run must make alike. All run the same code; where
// processes could decide differently (files, signals, clocks, memory), the Coordinator decides for
// all. For a single process nothing here costs anything.
//
//   coordinator.on_rank_zero("the run's folder", [&] { make_folder(); });  // all get its error
//   path = coordinator.broadcast("the checkpoint", [&] { return newest(); });  // of rank 0
//   coordinator.on_all_ranks("opening the data", [&] { data = load(); });  // on all, or on none
//   coordinator.poll();                                                    // between two steps
//   if (coordinator.stop_signal() != 0) ...                                // the same on all
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/heartbeat_monitor.h"
#include "comm/process_group.h"
#include "engine/logs.h"
#include "engine/step_runner.h"

namespace meshtrain {

class Coordinator {
 public:
  // Time limit in seconds for reading or writing a whole model.
  static constexpr double kLongestFiles = 3600;

  // A single process.
  Coordinator() = default;
  Coordinator(Processes processes, Clock now);

  int rank() const { return processes_.rank(); }
  int size() const { return processes_.size(); }
  bool is_alone() const { return size() == 1; }
  // True on rank 0, which prints, writes the run's files and decides for all.
  bool is_first() const { return processes_.is_first(); }
  const Processes& processes() const { return processes_; }
  std::string describe(int rank) const;  // "rank 5 on host h2 (pid 20407)"

  // --- collective, by the main thread. `what`, a literal, is for the message about a missing rank:
  // "opening the data".
  // Returns the texts of all processes, by rank.
  std::vector<std::string> all_gather(const char* what, std::string_view mine) const;
  // Rank 0 alone runs `action`. When it throws, all throw the same error.
  void on_rank_zero(const char* what, const std::function<void()>& action) const;
  // The same; all return rank 0's result.
  std::string broadcast(const char* what, const std::function<std::string()>& action) const;
  // Each process runs `action`, which must contain no collective. When one throws, all throw: the
  // error of rank 0, else that of the lowest rank with the rank's name before the message.
  void on_all_ranks(const char* what, const std::function<void()>& action) const;

  // --- between two steps: signals to any rank, rank 0's clock -----------------------------------
  enum class Pace {
    kNow,    // in any case
    kPaced,  // when it is due: often enough for people, rarely enough to cost little
  };
  // Collective. `is_done`: of something that each process waits for. Returns whether it is done on
  // all; false when it was not time to poll. `logs`: a hash of what must be the same on all; throws
  // ConfigError E510 (exit 5) where it is not, 0 is not compared.
  bool poll(Pace pace = Pace::kPaced, bool is_done = true, uint64_t logs = 0);
  // As of the last poll().
  int stop_signal() const;
  bool stop_saves() const;
  double now() const;  // rank 0's clock
  bool take_checkpoint_request();
  bool take_report_request();
  // poll(), and throws StopRequested when a signal asked to stop; `done`: see signals.h.
  void throw_if_stopped(const std::string& done);

  // --- to the heartbeat monitor, where there is one ----------------------------------------------
  void progress(const TrainPosition& position, const char* phase) const;
  void loss(int64_t step, const StepRunner& runner) const;  // its last loss
  void set_last_checkpoint(int64_t step) const;
  // While the result lives, other processes wait up to `limit_seconds` for this one.
  [[nodiscard]] std::optional<HeartbeatMonitor::Announcement> announce(
      const char* what, double limit_seconds = kLongestFiles) const;

 private:
  struct Message;

  Processes processes_;
  Clock now_;
  double time_ = 0;          // of rank 0
  double poll_seconds_ = 0;  // that the last exchange took
  double polled_at_ = 0;     // when it ended, by this process's clock
  int64_t pace_ = 1;         // calls of poll() for each exchange
  int64_t calls_ = 0;        // since the last one
  int stop_signal_ = 0;
  bool stop_saves_ = false, asked_checkpoint_ = false, asked_report_ = false;
};

// Hash of values that all processes must have, for Coordinator::poll(). All NaN are equal, whatever
// their bits.
uint64_t hash_logs(const Logs& logs);

}  // namespace meshtrain
