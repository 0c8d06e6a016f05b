// AsyncSaver: writes checkpoints on a thread of its own, one at a time, so that the steps wait for
// one copy of the state at most. Where memory, a thread or the heartbeat monitor is missing, they
// wait for the save. The processes of a run save together: each writes or sends its shards.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "config/config.h"
#include "engine/coordinator.h"

namespace meshtrain {

struct AsyncSaverOptions {
  std::string folder;  // of the run's checkpoints
  bool async = true;
  int64_t memory = 0;  // bytes for copies of the state; 0: a quarter of what is free
  // By rank, with checkpoint.gather: whether it sees the run's folder. Empty: all write into it.
  std::vector<bool> sees_folder;
  Clock now;
  std::function<void(const std::string&)> warn;
  std::function<void()> before_commit;  // see SaveOptions
};

struct FinishedSave {
  CheckpointNotes notes;
  SaveResult result;
  double blocked_seconds = 0;  // that the steps waited for it
};

// Throws ConfigError E501, at the optimizer's place, where the model of `step` that was written
// into `folder` is not finite. Its note names the checkpoint of step `last_saved`.
void check_finite(const SaveResult& result, const std::string& folder, int64_t step,
                  int64_t last_saved, const SourceLoc& optimizer);

class AsyncSaver {
 public:
  // Store and coordinator must outlive the saver.
  AsyncSaver(VariableStore& store, Coordinator& coordinator, AsyncSaverOptions options);
  ~AsyncSaver();  // waits for the save that is being written

  int64_t num_bytes() const { return snapshot_.num_bytes(); }  // of all tensors of a checkpoint
  // True from start() until finish() returns the save.
  bool is_busy() const { return saving_.valid(); }
  // True when this process has nothing left to write.
  bool is_written() const;

  // Saves the state as it is now. Collective, and only when not busy. Steps wait since `begin`.
  // Returns the save when no thread writes it.
  std::optional<FinishedSave> start(CheckpointNotes notes, double begin);
  // Waits for the save that was started. Returns nothing when there is none.
  std::optional<FinishedSave> finish();
  // Saves at `path`, in place of a checkpoint that is there; the steps wait. Collective, and only
  // when not busy.
  SaveResult save_as(const std::string& path, const CheckpointNotes& notes);

 private:
  bool copy_state();
  bool start_beside(bool replaces);
  bool is_named(int64_t step) const;
  SaveOptions save_options(bool anywhere = false);
  SaveResult write(const SaveOptions& options, bool replaces) const;
  FinishedSave take(SaveResult result);
  void warn_of_waiting(const std::string& why);

  Coordinator& coordinator_;
  const AsyncSaverOptions options_;
  Snapshot snapshot_;
  CheckpointNotes notes_;  // of the save that was started
  double blocked_seconds_ = 0;
  int64_t last_failed_ = -1;  // step
  bool is_warned_ = false;
  std::atomic<bool> is_committing_{false};  // all processes wrote their shards
  std::future<SaveResult> saving_;
  std::optional<HeartbeatMonitor::Hook> on_abort_;
};

}  // namespace meshtrain
