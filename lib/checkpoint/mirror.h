// Mirror: a checkpoint, or a file, of rank 0's where every process of a run can read it.
#pragma once

#include <optional>
#include <string>

#include "comm/heartbeat_monitor.h"
#include "engine/coordinator.h"

namespace meshtrain {

// A process that sees at the same path what rank 0 sees there reads it in its place. Where not all
// do, rank 0 sends all of it, and each host keeps a copy in its folder for temporary files (TMPDIR)
// as long as this lives; only a process that is killed leaves it there. To compare what they see
// costs each a pass over the file, or over the checkpoint's manifest; a copy is sent to every
// process.
class Mirror {
 public:
  // Collective. `path` is rank 0's. Throws ConfigError E457 (exit 6): where there is no room for a
  // copy, and for each process that does not see it unless it `may_copy`; what CheckpointReader
  // throws on rank 0; FileError; StopRequested by a signal while it is copied.
  Mirror(const Coordinator& coordinator, const std::string& path, bool may_copy);

  const std::string& path() const { return path_; }  // for this process

 private:
  // Made by this process, and deleted with it, also when it ends early.
  class Folder {
   public:
    Folder() = default;
    ~Folder() { remove(); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    void make(const Coordinator& coordinator);
    void remove();
    const std::string& path() const { return path_; }  // "": there is none

   private:
    std::string path_;
    std::optional<HeartbeatMonitor::Hook> on_abort_;
  };

  void choose_folder(const Coordinator& coordinator, const std::string& name, bool is_blind);
  void copy(const Coordinator& coordinator, const std::string& from, bool is_blind);

  std::string path_;
  Folder folder_;
};

}  // namespace meshtrain
