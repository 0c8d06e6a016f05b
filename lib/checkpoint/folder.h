// The folder of a run's checkpoints: who may write there, what is kept, what is cleaned up.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/config.h"

namespace meshtrain {

// Held as long as a run writes into the folder.
class CheckpointLock {
 public:
  // Throws ConfigError E455 naming the holder when another process has it.
  CheckpointLock(const std::string& folder, const std::string& run_id);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

  const std::string& previous_run() const { return previous_run_; }  // who held it last; may be ""

 private:
  int fd_ = -1;
  std::string previous_run_;
};

// Deletes what unfinished saves of these runs left, and of others when older than a day. Returns
// warnings: what could not be deleted, and the unfinished saves (E401).
std::vector<std::string> clean_checkpoints(const std::string& folder,
                                           const std::vector<std::string>& run_ids);

// Renames checkpoints that must not be taken for the newest to aside.STEP.N. Throws FileError.
std::vector<std::string> quarantine(const std::string& folder, const std::vector<int64_t>& steps);

// The step of the checkpoint that the link `best` names; -1 where there is no such link.
int64_t best_link(const std::string& folder);
// Makes it name that step, or for -1 removes it; on the disk when this returns. Throws FileError.
void set_best_link(const std::string& folder, int64_t step);

// Room for keep + 1 checkpoints of `num_bytes`, and whether a folder can be made, renamed and
// synced. Throws ConfigError E420, E421 (exit 74).
void check_checkpoint_folder(const std::string& folder, int64_t num_bytes, int64_t keep);

// Deletes all checkpoints but the `keep` (at least 2) newest, those in `pinned` and the one that
// the link `best` names. Returns warnings; an error here never makes a save a failure.
std::vector<std::string> prune_checkpoints(const std::string& folder, int64_t keep,
                                           const std::vector<int64_t>& pinned,
                                           const std::string& run_id);

std::string new_run_id();  // eight hexadecimal digits
std::string utc_time();    // "2026-01-05T14:03:22Z"

}  // namespace meshtrain
