// The runs below a folder; tags and notes; removing runs and what they no longer need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshtrain {

// What a user wrote about a run: notes.json in its folder.
struct RunNotes {
  std::vector<std::string> tags;  // sorted
  std::string note;
};

// Returns empty notes when the run has none. Throws FileError when they cannot be read.
RunNotes read_notes(const std::string& run);
// Replaces them. Throws FileError (exit 74).
void write_notes(const std::string& run, const RunNotes& notes);

// Returns the folders of all runs in and below `folder`, by the folder that holds them, the oldest
// first; links are not followed.
std::vector<std::string> find_runs(const std::string& folder);
// Sorts runs by their first start, as meta.json has it; by their last event where it has none.
void sort_oldest_first(std::vector<std::string>& runs);
// Returns the newest run of a folder of runs ("runs/mlp"), or "": the one that the link `latest`
// leads to, else the one that began last, for the folder may have been copied without its link.
std::string newest_run(const std::string& folder);
// Whether the final weights of a run are there.
bool has_weights(const std::string& run);
// Returns the bytes of all files of a run.
int64_t run_bytes(const std::string& run);
// Returns when the run last wrote its events, in seconds since 1970.
int64_t last_written(const std::string& run);

// Whether a process writes a run: its checkpoints have a lock. kUnknown without checkpoints.
enum class RunUse { kUnknown, kUsed, kUnused };
RunUse run_use(const std::string& run);

// Deletes a run. Its folder gets another name first, so that a crash leaves no half of a run. The
// link `latest` beside it then leads to the newest run that is left. Throws ConfigError E400 for a
// folder that is no run, E455 while a process writes there, FileError (exit 74).
void remove_run(const std::string& run);
// Deletes the checkpoints of a run that has its final weights. Returns the bytes that are free
// then. Throws as remove_run(), and E400 for a run without weights.safetensors.
int64_t remove_checkpoints(const std::string& run);

}  // namespace meshtrain
