// ResumeTarget: the checkpoint from which a run resumes, and the folder for its results.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/mirror.h"
#include "checkpoint/reader.h"
#include "config/object.h"
#include "engine/coordinator.h"
#include "record/run_dir.h"

namespace meshtrain {

struct ResumeTarget {
  RunDirOptions run;                         // where results go; `resume` for a resumed run
  std::unique_ptr<CheckpointReader> reader;  // null: from the beginning
  bool own = false;                          // the checkpoint is one of that folder
  int64_t newest_step = -1;  // of the run's checkpoints when this one was selected; -1: none
  std::string path;          // of the checkpoint, where rank 0 reads it
  bool gathers = false;      // hosts that do not share that folder get a copy
  std::unique_ptr<Mirror> copy;
  std::vector<std::string> warnings;  // damaged checkpoints that were skipped
};

// Returns `given`, the value of --resume, else run.resume.
std::string resume_mode(const std::string& given, const Config& config);
// Returns BackupAndRestore when neither --resume nor run.resume is given; else nullptr.
const ConfigObject* deciding_backup(const std::string& given, const Config& config);

// `mode`: "" or "never", "auto", "latest", "best", or the path of a checkpoint or a run. Throws
// ConfigError E400 (exit 6) when there is nothing to resume and `mode` is not auto; E455 when
// another process has the run; what is wrong with the checkpoint that a path names, or with all of
// a run's.
ResumeTarget find_resume_target(const std::string& mode, RunDirOptions run);

// Throws ConfigError E455 (exit 6) when the run has other checkpoints than when `target` was
// selected: another process has trained it meanwhile. For a process that has the run's lock.
void check_unchanged(const ResumeTarget& target, const std::string& run_dir);

// Rank 0 calls `find`, and all processes receive its target. The others open the checkpoint, or a
// copy, without verifying it again. Collective. Throws also E457 (exit 6) when one cannot read it.
ResumeTarget agree_on_target(const Coordinator& coordinator,
                             const std::function<ResumeTarget()>& find);

// With BackupAndRestore: the run that was interrupted, found by -o, `backup_dir` or the name; a run
// from the beginning when there is none, or when it was finished.
ResumeTarget find_interrupted_run(const ConfigObject& backup, RunDirOptions run);
// Its folder, or "".
std::string interrupted_run(const ConfigObject& backup, const RunDirOptions& run);
// At the begin and at the end of a run with BackupAndRestore: `backup_dir` leads to the run; the
// checkpoints of one that is finished are deleted if `delete_checkpoint` says so. Throw FileError
// (exit 74).
void begin_backup(const ConfigObject& backup, const std::string& run_dir);
void end_backup(const ConfigObject& backup, const std::string& run_dir);

// Returns the newest run of a folder of runs ("runs/mlp"), as its link `latest` says; every other
// path as it is, without slashes at its end.
std::string run_folder(const std::string& path);

// The same, with links to runs followed: what is deleted or written to.
std::string resolved_run(const std::string& path);

// Throws ConfigError E400 (exit 6) for a path without a run or a checkpoint; says which folder may
// have been meant.
[[noreturn]] void no_run_in(const std::string& path);

// The checkpoint of a path that names it, the run or its folder of checkpoints: for a run the
// newest that passes `check`. Throws as above, and E455 where the run is to be continued and
// another process has it.
enum class RunAccess { kRead, kContinue };
ResumeTarget open_resume_path(const std::string& path,
                              const CheckpointCheck& check = &CheckpointReader::verify,
                              RunAccess access = RunAccess::kRead);

}  // namespace meshtrain
