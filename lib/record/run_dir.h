// The run directory: all files of a run. config/run_files.h names them.
//
// config.resolved.yaml can be used from anywhere: the paths of data are absolute. A run never
// writes into another run's directory; a resumed run continues in its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/diagnostic.h"
#include "engine/logs.h"
#include "record/line_log.h"

namespace meshtrain {

struct RunDirOptions {
  std::string dir;    // used as it is; empty: <root>/<name>/<time>_<4 hex digits>
  SourceLoc dir_loc;  // where `dir` was written, for messages
  std::string name;   // of the run; where one does not suit a folder, "_" for such characters
                      // and a hash
  std::string root = "runs";
  std::string new_folder;  // its name, in place of <time>_<4 hex digits>
  bool resume = false;     // continue the run in `dir`
};

// Checks `dir` before anything else is done: E141 when it holds another run (or anything), E142
// (exit 74) when it cannot be created or written to. A run that was killed before its first report
// leaves an empty checkpoints/ and an empty metrics.jsonl: such a folder counts as empty.
void check_run_dir(const RunDirOptions& options, Diagnostics& diagnostics);

// Checks that files can be created in folder `path`, which need not exist: else E142.
void check_can_make(const std::string& path, const SourceLoc& loc, Diagnostics& diagnostics);

class RunDir {
 public:
  // Creates the directory, its checkpoints/ and metrics.jsonl. Throws ConfigError E141, E142. A
  // resumed run needs an existing directory, and rewind() before metrics().
  RunDir(const RunDirOptions& options, LineLog::OnTrouble on_trouble);

  // The directory of a run whose files another process writes.
  explicit RunDir(std::string path) : path_(std::move(path)) {}

  // Once the run has begun: in <root>/<name> the link `latest` leads to it.
  void link_latest() const;
  // Removes the directory of a run that does not begin, where this made it and it holds nothing.
  void discard();

  // Removes events after `position` from metrics.jsonl, since these steps are repeated. Throws
  // FileError (exit 74).
  void rewind(const TrainPosition& position);

  // Checks at the start that there is room for the final weights: E142 (exit 74).
  void check_room(int64_t num_bytes) const;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  // Writes a file atomically. Throws FileError (exit 74).
  void write(std::string_view name, std::string_view text) const;
  LineLog& metrics() { return *metrics_; }
  // Syncs the folder, its name and metrics.jsonl to the disk. Throws FileError (exit 74). May be
  // called from another thread than metrics().
  void sync() const;

 private:
  std::string path_;
  bool is_named_ = false, is_new_ = false;  // by time in <root>/<name>; made by this
  LineLog::OnTrouble on_trouble_;
  std::unique_ptr<LineLog> metrics_;
};

// Returns whether `dir` holds a run.
bool is_run_dir(const std::string& dir);
// Returns whether the run in `dir` has ended.
bool is_finished_run(const std::string& dir);
// For RunDirOptions::new_folder: "2026-01-05_14-03-22_7f3a".
std::string new_folder_name(int attempt = 0);
// The folder of the runs of that name: "runs/mlp".
std::string runs_folder(const RunDirOptions& options);

// Returns the lines of metrics.jsonl without what a run resumed at `position` says again: the
// steps, epochs, warnings and evaluations after it, and warnings of a start. Without a truncated
// last line.
std::string rewound_metrics(std::string_view text, const TrainPosition& position);

}  // namespace meshtrain
