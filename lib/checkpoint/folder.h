// The folder of a run's checkpoints: its lock, quarantine, retention and cleanup.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/config.h"

namespace meshtrain {

// Lock on the folder, held as long as a run writes there.
class CheckpointLock {
 public:
  // Throws ConfigError E455 naming the holder when another process has it.
  CheckpointLock(const std::string& folder, const std::string& run_id);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

  const std::string& previous_run() const { return previous_run_; }  // the last holder; may be ""

 private:
  int fd_ = -1;
  std::string previous_run_;
};

// Throws ConfigError E455 naming the holder while another process has the lock.
void check_unlocked(const std::string& folder);

// Deletes the files of unfinished saves of these runs, and of other runs when older than a day.
// Returns warnings: the unfinished saves (E401), and what could not be deleted.
std::vector<std::string> clean_checkpoints(const std::string& folder,
                                           const std::vector<std::string>& run_ids);

// Renames checkpoints that must not count as the newest to aside.STEP.N. Returns the new paths.
// Throws FileError.
std::vector<std::string> quarantine(const std::string& folder, const std::vector<int64_t>& steps);

// Returns the step of the checkpoint that the link `best` names; -1 without such a link.
int64_t best_link(const std::string& folder);
// Sets the link to that step, or removes it for -1. Durable on return. Throws FileError.
void set_best_link(const std::string& folder, int64_t step);

// Checks that there is room for keep + 1 checkpoints of `num_bytes`, and that a folder can be
// created, renamed and synced. Throws ConfigError E420, E421 (exit 74).
void check_checkpoint_folder(const std::string& folder, int64_t num_bytes, int64_t keep);

// Deletes all checkpoints except the `keep` (at least 2) newest, those in `pinned` and the one that
// the link `best` names. Returns errors as warnings: they never fail a save.
std::vector<std::string> prune_checkpoints(const std::string& folder, int64_t keep,
                                           const std::vector<int64_t>& pinned,
                                           const std::string& run_id);

std::string new_run_id();  // eight hexadecimal digits
std::string utc_time();    // "2026-01-05T14:03:22Z"

}  // namespace meshtrain
