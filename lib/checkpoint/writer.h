// Writes one checkpoint so that it is either complete or not there, whatever happens in between:
// a folder beside the final name, every file and folder fsynced, a rename, the folder around it
// fsynced; only then it counts as saved.
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

// What a checkpoint holds beside tensors.
struct CheckpointNotes {
  TrainState state;
  std::string written_by;  // "meshtrain 0.1.0"
  std::string run_id, parent_run;
  std::string time;  // "2026-01-05T14:03:22Z"
  double loss = 0;
  std::vector<std::pair<std::string, std::string>> texts;  // config.yaml, ...: name and content
};

// What a save came to. Nothing throws: an error is a result like any other.
struct SaveResult {
  std::string path;  // of the checkpoint, when it was saved
  bool saved = false;
  std::string error;  // why not: "[E420] step 500 was not saved: ..."
  // What has NaN or infinity: "d1/kernel has 3 NaN"; then it is in rejected/, unless there is an
  // error too.
  std::string non_finite;
  // What processes should have alike and do not: "`d1/kernel` differs between rank 0 and rank 3".
  std::string unequal;
  int64_t num_bytes = 0;
  double seconds = 0;  // of writing
};

// "000500"
std::string checkpoint_name(int64_t step);
std::string checkpoint_name_or_none(int64_t step);  // "none" for -1

// Of several processes all save together, each the pieces that its snapshot gives it, into a folder
// that rank 0 sees; rank 0 commits, and all have the same result.
struct SaveOptions {
  // When everything is written and before the checkpoint gets its name: for what must not be older
  // than it on the disk. By rank 0. It may throw FileError.
  std::function<void()> before_commit;

  // Of several processes; the rest is not there for one alone.
  int rank = 0;
  std::string name;  // of this process: "rank 1 on host h2 (pid 812)"
  // Collective: what each gave, by rank. The same number of times in every save.
  std::function<std::vector<std::string>(std::string mine)> all_gather;
  // Where some do not see the folder: for the files of these. Null: all write into it.
  FileGather::Exchange gather;
  bool sees_folder = true;  // this process
  size_t part_bytes = 0;    // that it sends at once
  // Of rank 0: true from when all have written theirs until that has its name, or an error.
  std::atomic<bool>* is_committing = nullptr;
};

SaveResult write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                            const CheckpointNotes& notes, const SaveOptions& options = {});

// The same at `path`, whatever its name: folders above are made, and a checkpoint that is there is
// exchanged in one step. Anything else there, also a checkpoint that is not whole or a link, is an
// error.
SaveResult replace_checkpoint(const std::string& path, const Snapshot& snapshot,
                              const CheckpointNotes& notes, const SaveOptions& options = {});

}  // namespace meshtrain
