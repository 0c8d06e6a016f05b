// HeartbeatMonitor: detects a process that is lost, hangs or diverges from the others. All
// processes of the run then end within seconds, with one message.
//
// A thread in each process serves a TCP connection to rank 0. Every second each rank reports its
// position, and rank 0 judges:
//   E601 a rank ended or stopped answering      E603 ranks are in different collectives
//   E602 a rank hangs                           E604 ranks have different losses at one step
// Rank 0 prints one message and makes all exit: each runs its hooks (on_abort) and ends with that
// exit code. The others do the same when rank 0 is lost. E605 is for errors that MPI or NCCL
// report: fail(8, ...).
//
//   HeartbeatMonitor monitor(group, HeartbeatOptions::from_environment());  // collective
//   const char* name = monitor.keep("all-reduce of bucket 3");          // once, when preparing
//   monitor.progress(step, epoch, "forward");                           // in the loop
//   monitor.enter(signature, name);  transfer->run();  monitor.leave();
//   monitor.finish();                                                   // all ranks, at the end
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/activity.h"
#include "comm/process_group.h"

namespace meshtrain {

struct HeartbeatOptions {
  double silence_seconds = 10;      // a link without a word for so long is lost
  double collective_seconds = 120;  // for a rank to come to where another one waits
  double join_seconds = 60;         // for all to connect at the start
  double hook_seconds = 5;          // for the hooks of on_abort, together
  // The one interface at which rank 0 listens ("eth0"). Empty: loopback between processes of one
  // host, else where the group says that the others have reached rank 0, else all.
  std::string interface;
  // "the same command with --resume", in messages.
  std::string resume_command;
  std::function<void(std::string_view)> print;  // default: to standard error
  // The end of the process; for tests, which end a thread instead. default: _exit
  std::function<void(int)> exit;
  // The parent process, which must live as long as this one: exit when it has ended (E601).
  // 0: there is none such; launcher_pid() of process_exit.h finds the launchers of MPI and Slurm.
  int parent = 0;
  // Seconds from the start of the exit to SIGKILL; 0: never.
  double last_resort_seconds = 15;

  // MESHTRAIN_HEARTBEAT_TIMEOUT (silence_seconds), MESHTRAIN_COLLECTIVE_TIMEOUT,
  // MESHTRAIN_JOIN_TIMEOUT (seconds) and MESHTRAIN_NET_INTERFACE. Throws ConfigError (exit 2).
  static HeartbeatOptions from_environment();
};

class HeartbeatMonitor {
 public:
  // Collective, by the thread that made the group, which is used here only. Throws ConfigError E612
  // (exit 8: a rank did not connect in time), E613 (exit 8: no address to be reached at) or E640
  // (exit 4: too few open files allowed).
  HeartbeatMonitor(ProcessGroup& group, HeartbeatOptions options);
  // Without finish(), the others treat this rank as lost.
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;
  HeartbeatMonitor& operator=(const HeartbeatMonitor&) = delete;

  int rank() const;
  int size() const;
  std::string describe(int rank) const;  // "rank 5 on host h2 (pid 20407)"

  // --- by the main thread, in the step --------------------------------------------------------
  // Texts must live as long as the monitor: literals, or what keep() returned.
  void progress(int64_t step, int64_t epoch, const char* phase) {
    activity_.change([&](Activity::Values& v) {
      v.step = step;
      v.epoch = epoch;
      v.phase = phase;
    });
  }
  // A hash of the bits of the loss of `step` (from 1, going up), the same on all ranks.
  void loss(int64_t step, uint64_t hash);
  // Call before and after a collective. All ranks enter the same collectives in the same order,
  // also collectives among some of them; the monitor counts them. `signature` (of kind, bytes,
  // dtype; the same on all ranks, 0: not compared) distinguishes them.
  void enter(uint64_t signature, const char* name) {
    activity_.change([&](Activity::Values& v) {
      ++v.sequence;
      ++v.entries;
      v.signature = signature;
      v.collective = name;
      v.inside = true;
      v.awaited = "";
      v.awaited_steps = 0;
    });
  }
  // Like enter(), for work that a rank may wait for alone: results of `steps` asynchronous steps,
  // each of which may take as long as a collective. A rank that has entered no more collectives
  // than this one, and does not wait, counts as the cause of the wait.
  void wait_for(const char* what, int64_t steps) {
    activity_.change([&](Activity::Values& v) {
      ++v.entries;
      v.inside = true;
      v.awaited = what;
      v.awaited_steps = steps;
    });
  }
  void leave() {
    activity_.change([](Activity::Values& v) { v.inside = false; });
  }

  // --- by any thread --------------------------------------------------------------------------
  // A copy of `text` that lives as long as the monitor, one for equal texts.
  const char* keep(std::string_view text);

  // While it lives, others wait for this rank up to `limit_seconds` from its creation; later, the
  // rank counts as hanging (E602). For rare long work: the first compilation, opening data.
  class Announcement {
   public:
    Announcement(Announcement&& other) noexcept
        : monitor_(std::exchange(other.monitor_, nullptr)), id_(other.id_) {}
    Announcement& operator=(Announcement&&) = delete;
    ~Announcement();

   private:
    friend class HeartbeatMonitor;
    Announcement(HeartbeatMonitor* monitor, uint64_t id) : monitor_(monitor), id_(id) {}
    HeartbeatMonitor* monitor_;
    uint64_t id_;
  };
  [[nodiscard]] Announcement announce(std::string what, double limit_seconds);

  // Collective: returns the texts of all ranks under `key`, by rank. A key is reusable, by one
  // thread of a rank at a time; different keys are independent. A rank that is more than
  // `limit_seconds` later than the first counts as hanging (E602); 0: collective_seconds. At most
  // 64 MiB of text.
  std::vector<std::string> all_gather(std::string_view key, std::string text,
                                      double limit_seconds = 0);
  // The same, but only rank 0 gets all texts; the others get a list with rank 0's text first. All
  // ranks must call the same function under a key.
  std::vector<std::string> gather(std::string_view key, std::string text, double limit_seconds = 0);

  // Sets the step of the newest complete checkpoint for the message; call on all ranks.
  void set_last_checkpoint(int64_t step);

  // Runs `hook` when the processes must exit: in a separate thread, newest first, while the monitor
  // still serves all_gather(). All hooks together have hook_seconds, then the process ends. The
  // Hook must not outlive the monitor; its destructor waits for a running hook.
  class Hook {
   public:
    Hook(Hook&& other) noexcept
        : monitor_(std::exchange(other.monitor_, nullptr)), id_(other.id_) {}
    Hook& operator=(Hook&&) = delete;
    ~Hook();

   private:
    friend class HeartbeatMonitor;
    Hook(HeartbeatMonitor* monitor, uint64_t id) : monitor_(monitor), id_(id) {}
    HeartbeatMonitor* monitor_;
    uint64_t id_;
  };
  [[nodiscard]] Hook on_abort(std::function<void()> hook);
  // Returns true when the processes are exiting: waiting loops should stop.
  bool aborting() const { return aborting_.load(std::memory_order_relaxed); }

  // Ends this rank and all others with `exit_code`. Rank 0 prints `text` (whole lines) once, also
  // when several ranks fail with the same text, and names these ranks unless all failed.
  [[noreturn]] void fail(int exit_code, const std::string& text);

  // --- the end --------------------------------------------------------------------------------
  // Returns when all ranks have called it. From then on, a lost rank is no error.
  void finish();

 private:
  class Impl;
  Activity activity_;
  std::atomic<bool> aborting_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshtrain
