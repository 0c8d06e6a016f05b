// How far a download is, on a terminal.
#pragma once

#include <cstdint>
#include <string>

#include "engine/logs.h"
#include "record/progress.h"

namespace meshtrain {

// "mnist.npz   5.2 MiB of 11 MiB, 48%, 2.1 MiB/s", over itself, at most ten times a second; taken
// away at the end.
class DownloadLine {
 public:
  DownloadLine(std::string name, uint64_t num_bytes, Clock now, TextSink write)
      : name_(std::move(name)),
        num_bytes_(num_bytes),
        now_(std::move(now)),
        write_(std::move(write)) {}
  ~DownloadLine();
  DownloadLine(const DownloadLine&) = delete;
  DownloadLine& operator=(const DownloadLine&) = delete;

  void update(uint64_t bytes);

 private:
  const std::string name_;
  const uint64_t num_bytes_;
  const Clock now_;
  const TextSink write_;
  bool is_drawn_ = false;
  double drawn_ = 0, first_ = 0;
  uint64_t first_bytes_ = 0;
};

}  // namespace meshtrain
