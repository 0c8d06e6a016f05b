// LineLog: a file that grows by whole lines, one write() each. A reader never gets half a line, and
// a crash loses no reported line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace meshtrain {

class LineLog {
 public:
  // Called once, with the reason, when lines can no longer be written.
  using OnTrouble = std::function<void(const std::string& message)>;

  // Creates `path` anew, or appends to it. Throws FileError (exit 74).
  LineLog(std::string path, OnTrouble on_trouble, bool append = false);
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  // Appends `line` and a line feed. A full disk does not stop a run: the lines wait in memory, up
  // to 1 MiB, and are written when there is room again.
  void append(std::string_view line);
  // Appends bytes that belong together, as they are.
  void write(std::string_view bytes);
  int64_t size() const { return size_; }  // bytes in the file
  // Syncs written lines to the disk, as far as possible. Thread-safe.
  void sync() const;
  // Throws FileError (exit 74) when lines are still unwritten or were dropped.
  void close();

 private:
  bool write_waiting();

  std::string path_;
  OnTrouble on_trouble_;
  int fd_ = -1;
  int64_t size_ = 0;     // bytes of whole lines in the file
  std::string waiting_;  // lines not yet written
  bool lost_ = false;    // lines were given up
  bool reported_ = false;
  int error_number_ = 0;  // of the last write that failed
};

}  // namespace meshtrain
