// LocalCopy: a checkpoint, or a file, of rank 0's where every process of a run can read it.
#pragma once

#include <optional>
#include <string>

#include "comm/control_channel.h"
#include "train/agreement.h"

namespace meshtrain {

// A process that sees at the same path what rank 0 sees there reads it in its place. Where not all
// do, rank 0 sends all of it, and each host keeps a copy in its folder for temporary files (TMPDIR)
// as long as this lives.
class LocalCopy {
 public:
  // Collective. `path` is rank 0's. Throws ConfigError E457 (exit 6): where there is no room for a
  // copy, and for each process that does not see it unless it `may_copy`; FileError.
  LocalCopy(const Agreement& agreement, const std::string& path, bool may_copy);
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;

  const std::string& path() const { return path_; }  // for this process

 private:
  void choose_folder(const Agreement& agreement, bool is_blind);
  void copy(const Agreement& agreement, const std::string& from, bool is_blind);

  std::string path_;
  std::string folder_;  // made by this process: deleted with it
  std::optional<ControlChannel::Hook> on_abort_;
};

}  // namespace meshtrain
