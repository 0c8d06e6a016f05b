// The run directory: everything that a run leaves behind.
//
//   config.yaml            as written            config.resolved.yaml   every value with its origin
//   metrics.jsonl          what happened         weights.safetensors    at the end, by Keras paths
//   plan.txt, plan.json    what is sharded how   checkpoints/
//
// A run never writes into another run's directory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "train/line_log.h"

namespace meshtrain {

struct RunDirOptions {
  std::string dir;    // used as it is; empty: <root>/<name>/<time>_<4 hex digits>
  SourceLoc dir_loc;  // where `dir` was written, for messages
  std::string name;   // of the run; characters that do not suit a file name become "_"
  std::string root = "runs";
};

// What can be said before anything else is done: E141 `dir` holds another run (or anything), E142
// (exit 74) it cannot be made or written to.
void check_run_dir(const RunDirOptions& options, Diagnostics& diagnostics);

class RunDir {
 public:
  // Makes the directory, its checkpoints/ and metrics.jsonl and, in <root>/<name>, the link
  // `latest` to it. Throws ConfigError E141, E142.
  RunDir(const RunDirOptions& options, LineLog::OnTrouble on_trouble);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  // Writes a file whole or not at all. Throws FileError (exit 74).
  void write(std::string_view name, std::string_view text) const;
  LineLog& metrics() { return *metrics_; }

 private:
  std::string path_;
  std::unique_ptr<LineLog> metrics_;
};

}  // namespace meshtrain
