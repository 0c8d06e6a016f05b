// HeartbeatMonitor: how the processes of a run notice that one of them is lost, hangs or does
// something else than the others, and end together then, within seconds and with one message.
//
// A star of TCP connections to rank 0, served by a thread of its own in each process. Each second
// every rank reports where it is; rank 0 judges:
//   E601 a rank ended or stopped answering      E603 ranks are in different collectives
//   E602 a rank hangs                           E604 ranks have different losses at one step
// It prints one message and tells all to leave; each runs its hooks (on_abort) and ends with that
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
  // The process that started this one and stays as long as it: leave when that has ended (E601).
  // 0: there is none such; launcher_pid() of process_exit.h finds the launchers of MPI and Slurm.
  int parent = 0;
  // SIGKILL to itself so long after it began to leave; 0: never.
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
  // Without finish(), the others take this rank for lost.
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
  // Before and after what ranks do together. All ranks enter the same collectives in the same
  // order, also those in which only some of them talk to each other; the monitor counts them.
  // `signature` (of kind, bytes, dtype; the same on all ranks, 0: not compared) tells them apart.
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
  // Like enter() before what a rank may do alone, but waits in for what all began before: results
  // of `steps` that run by themselves, each of which may take as long as a collective. A rank that
  // has entered no more than this one and does not wait either keeps it waiting.
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

  // While it lives, others wait for this rank as long as `limit_seconds` from its start, and then
  // it hangs (E602). For what takes long now and then: the first compilation, opening data.
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

  // What each rank gave under `key`, by rank, when all have. A key may be used again and again, by
  // one thread of a rank at a time; other keys do not wait for it. A rank that comes more than
  // `limit_seconds` after the first hangs (E602); 0: collective_seconds. At most 64 MiB of text.
  std::vector<std::string> all_gather(std::string_view key, std::string text,
                                      double limit_seconds = 0);
  // The same for rank 0; the others get only what rank 0 gave, first of the list. All call the one
  // or the other under a key.
  std::vector<std::string> gather(std::string_view key, std::string text, double limit_seconds = 0);

  // The step of the newest complete checkpoint, on all ranks, for the message.
  void set_last_checkpoint(int64_t step);

  // Runs `hook` when the processes must leave: in a thread of its own, newest first, while the
  // monitor still serves all_gather(); all hooks together have hook_seconds, then the process ends.
  // Lives at most as long as the monitor; its end waits for a hook that is running.
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
  // Whether the processes are leaving: what waits in a loop should stop.
  bool aborting() const { return aborting_.load(std::memory_order_relaxed); }

  // This rank ends with `exit_code`, and all others with it. Rank 0 prints `text` (whole lines, as
  // the message is shown) once, also when several ranks fail with the same text, and says which
  // they were unless it was all of them.
  [[noreturn]] void fail(int exit_code, const std::string& text);

  // --- the end --------------------------------------------------------------------------------
  // Returns when all ranks have called it: none of them is missed from then on.
  void finish();

 private:
  class Impl;
  Activity activity_;
  std::atomic<bool> aborting_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshtrain
