// meta.json: who made a run, with what and where. The keys are those of its last start; `earlier`
// has the same of those before.
//
//   version, command_line, folder, host, pid, git {commit, branch} or null, name, seed,
//   dtype_policy, mesh {shape, axis_names}, devices, resumed_from, started, ended, exit_code,
//   message
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/run_info.h"

namespace meshtrain {

class RunMeta {
 public:
  // Writes `path`: a run that has begun; end() adds how it ended. Throws FileError (exit 74).
  RunMeta(std::string path, const RunInfo& info, const std::vector<std::string>& command_line);
  // Writes it again, with how the run ended. Throws FileError (exit 74).
  void end(int exit_code, std::string_view message = {});

 private:
  std::string path_;
  std::string text_;  // as written
};

struct GitState {
  std::string commit;  // empty on a branch without one
  std::string branch;  // empty when no branch is checked out
};
// Returns the state of the git work tree around `folder`, read from its files; nothing without one.
std::optional<GitState> git_state(const std::string& folder);

}  // namespace meshtrain
