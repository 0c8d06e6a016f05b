// Mirror: makes a checkpoint or a file of rank 0 readable for every process of a run.
#pragma once

#include <optional>
#include <string>

#include "comm/heartbeat_monitor.h"
#include "engine/coordinator.h"

namespace meshtrain {

// Processes with the same file at rank 0's path read it there. When some process has no such file,
// rank 0 sends all of it to every process, and each host stores a copy in its folder for temporary
// files (TMPDIR). The copy is deleted with this object; only a killed process leaves it behind. The
// comparison reads the file, or the checkpoint's manifest, once on each process.
class Mirror {
 public:
  // Collective. `path` is rank 0's. Throws ConfigError E457 (exit 6) when there is no room for a
  // copy, or when a process has no access and `may_copy` is false. Throws the errors of
  // CheckpointReader on rank 0, FileError, and StopRequested on a signal during the copy.
  Mirror(const Coordinator& coordinator, const std::string& path, bool may_copy);

  const std::string& path() const { return path_; }  // for this process

 private:
  // A folder that this process creates and deletes, also when the process aborts.
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
