// FileGather: the files of processes that do not see the folder of a save. They go to rank 0 in
// parts, which writes them there; nobody holds more than a part.
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
  // Collective: what each gave, by rank, for rank 0; the others get what rank 0 gave, first of the
  // list.
  using Exchange = std::function<std::vector<std::string>(std::string mine)>;

  FileGather(Exchange exchange, size_t part_bytes)
      : exchange_(std::move(exchange)), part_bytes_(part_bytes) {}

  // A file that goes to rank 0 while it is written. What is written throws RuntimeFailure (exit 74)
  // when rank 0 takes no more.
  std::unique_ptr<OutputFile> create(std::string name);
  void flush();  // what was written and has not gone yet
  // Of rank 0: writes what comes below `folder`, until nothing more does; what came, by name.
  // Throws FileError.
  std::map<std::string, CheckpointFile> receive(const std::string& folder);
  // Collective. Each process comes here in the end, also after it failed.
  void end(bool is_first);

 private:
  friend class SentFile;
  void send(const std::string& name, std::span<const std::byte> bytes);

  Exchange exchange_;
  size_t part_bytes_;
  std::string name_, unsent_;  // of the file that is sent, and what of it has not gone
  bool ended_ = false;         // rank 0 takes no more
};

}  // namespace meshtrain
