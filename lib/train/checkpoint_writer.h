// Writes one checkpoint so that it is either complete or not there, whatever happens in between:
// a folder beside the final name, every file and folder fsynced, a rename, the folder around it
// fsynced; only then it counts as saved.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/checkpoint_format.h"
#include "train/snapshot.h"

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
  std::string
      not_finite;  // what has NaN or infinity: "d1/kernel has 3 NaN"; then it is in rejected/
  int64_t num_bytes = 0;
  double seconds = 0;  // of writing
};

// "000500"
std::string checkpoint_name(int64_t step);

// `before_commit` runs when everything is written and before the checkpoint gets its name: for what
// must not be older than it on the disk. It may throw FileError.
SaveResult write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                            const CheckpointNotes& notes,
                            const std::function<void()>& before_commit = {});

// The same at `path`, whatever its name: folders above are made, and a checkpoint that is there is
// exchanged in one step. Anything else there is an error.
SaveResult replace_checkpoint(const std::string& path, const Snapshot& snapshot,
                              const CheckpointNotes& notes,
                              const std::function<void()>& before_commit = {});

}  // namespace meshtrain
