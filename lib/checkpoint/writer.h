// Writes one checkpoint atomically: it is either complete or absent, even after a crash. The steps:
// a temporary folder beside the final name, fsync of every file and folder, a rename, fsync of the
// parent folder. Only then the checkpoint counts as saved.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_gather.h"
#include "checkpoint/format.h"
#include "checkpoint/snapshot.h"

namespace meshtrain {

// The content of a checkpoint beside tensors.
struct CheckpointNotes {
  TrainState state;
  std::string written_by;  // "meshtrain 0.1.0"
  int64_t processes = 1;
  std::string run_id, parent_run;
  std::string time;  // "2026-01-05T14:03:22Z"
  double loss = 0;
  std::vector<std::pair<std::string, std::string>> texts;  // config.yaml, ...: name and content
};

// The result of a save. Saving does not throw: errors are results.
struct SaveResult {
  std::string path;  // of the checkpoint, when it was saved
  bool saved = false;
  std::string error;  // "[E420] step 500 was not saved: ..."
  // "d1/kernel has 3 NaN": the checkpoint is not finite, and is in rejected/ unless `error` is set.
  std::string non_finite;
  // Replicas that differ: "`d1/kernel` differs between rank 0 and rank 3".
  std::string unequal;
  int64_t num_bytes = 0;
  double seconds = 0;  // of writing
};

// "000500"
std::string checkpoint_name(int64_t step);
std::string checkpoint_name_or_none(int64_t step);  // "none" for -1

// All processes of a run save together; each writes the shards of its snapshot. Rank 0 must have
// access to the folder. Rank 0 commits, and all processes return the same result.
struct SaveOptions {
  // Called by rank 0 when everything is written and before the final rename, for files that must
  // not be older than the checkpoint on the disk. It may throw FileError.
  std::function<void()> before_commit;

  // For several processes only.
  int rank = 0;
  std::string name;  // of this process: "rank 1 on host h2 (pid 812)"
  // Collective: returns the texts of all, by rank. Called equally often in every save.
  std::function<std::vector<std::string>(std::string mine)> all_gather;
  // Sends the files of processes without access to the folder. Null: all have access.
  FileGather::Exchange gather;
  bool sees_folder = true;  // this process has access
  size_t part_bytes = 0;    // sent at once
  // On rank 0: true from when all parts are written until the rename or an error.
  std::atomic<bool>* is_committing = nullptr;
};

SaveResult write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                            const CheckpointNotes& notes, const SaveOptions& options = {});

// The same at any `path`. Creates parent folders, and exchanges an existing checkpoint atomically.
// Anything else at `path`, such as an incomplete checkpoint or a link, is an error.
SaveResult replace_checkpoint(const std::string& path, const Snapshot& snapshot,
                              const CheckpointNotes& notes, const SaveOptions& options = {});

}  // namespace meshtrain
