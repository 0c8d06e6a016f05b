// meta.json: the provenance of a run. The keys describe its last start; `earlier` has the same for
// earlier starts.
//
//   version, command_line, folder, run_dir, host, pid, git {commit, branch} or null, name, seed,
//   dtype_policy, mesh {shape, axis_names}, devices, resumed_from, started, ended, exit_code,
//   training_files [{path, bytes, modified}], message, stopped (why it ended before its last epoch)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/run_info.h"

namespace meshtrain {

class RunMeta {
 public:
  // Writes `path` for a run that has begun; end() adds its result. Throws FileError (exit 74).
  RunMeta(std::string path, const RunInfo& info, const std::vector<std::string>& command_line);
  // Writes the file again, with the result of the run. Throws FileError (exit 74).
  void end(int exit_code, std::string_view message = {}, std::string_view stopped = {});

 private:
  std::string path_;
  std::string text_;  // as written
};

// Returns the state of these paths now; those that are not there are left out.
std::vector<TrainingFile> file_states(const std::vector<std::string>& paths);
// Returns the files and folders of the training data of the run in `folder` that changed since the
// run's last start: their paths. Those that are gone are no change. Empty for a run of an older
// version.
std::vector<std::string> changed_training_files(const std::string& folder);

// Returns where the run in `folder` was at each of its starts, the last one first, without links.
// Empty for a run of an older version.
std::vector<std::string> former_places(const std::string& folder);

struct GitState {
  std::string commit;  // empty on a branch without one
  std::string branch;  // empty when no branch is checked out
};
// Returns the state of the git work tree around `folder`, read from its files; nothing without one.
std::optional<GitState> git_state(const std::string& folder);

}  // namespace meshtrain
