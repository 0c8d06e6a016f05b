// FileGather: sends the files of processes without access to the checkpoint folder to rank 0, which
// writes them there. Files are sent in parts; no process holds more than one part.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/durable_file.h"
#include "checkpoint/format.h"

namespace meshtrain {

class FileGather {
 public:
  // Collective. Rank 0 receives the texts of all, by rank; the others receive a list with rank 0's
  // text first.
  using Exchange = std::function<std::vector<std::string>(std::string mine)>;

  FileGather(Exchange exchange, size_t part_bytes)
      : exchange_(std::move(exchange)), part_bytes_(part_bytes) {}

  // Returns a file that is sent to rank 0 while it is written. Writing throws RuntimeFailure (exit
  // 74) when rank 0 has stopped receiving.
  std::unique_ptr<OutputFile> create(std::string name);
  void flush();  // sends what was written and not yet sent
  // On rank 0: writes received files below `folder` until all processes are done. Returns the files
  // by name. Throws FileError.
  std::map<std::string, CheckpointFile> receive(const std::string& folder);
  // Collective. Each process must call it last, even after an error.
  void end(bool is_first);

 private:
  friend class SentFile;
  void send(const std::string& name, std::span<const std::byte> bytes);

  Exchange exchange_;
  size_t part_bytes_;
  std::string name_, unsent_;  // of the current file: its name and its unsent bytes
  bool ended_ = false;         // rank 0 has stopped receiving
};

}  // namespace meshtrain
