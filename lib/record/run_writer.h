// RunWriter: writes the record of a run while it trains: its events, log.txt, meta.json,
// report.html.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/console.h"
#include "record/events.h"
#include "record/run_dir.h"
#include "record/run_log.h"
#include "record/run_meta.h"

namespace meshtrain {

class RunWriter {
 public:
  struct Options {
    bool writes = true;          // of several processes the first; the others do nothing
    bool prints_events = false;  // as JSON to `out`
    bool quiet = false;          // of the events only the last result
    TextSink out;                // stdout
  };
  RunWriter(Options options, const Config& config, RunDir& run, Console& console);

  void start(const RunInfo& info, const std::vector<std::string>& command_line);
  // The hooks for a trainer: events, log.txt, console.
  std::vector<Hook*> hooks();
  void saved(const std::string& text);
  void warn(const std::string& text);  // shown and, once the run has started, recorded
  // Adds a warning that was shown to the events and log.txt.
  void record_warning(const std::string& text);
  Console& console() { return console_; }
  // Writes the result of the run. A write error is only a warning, since the weights are saved
  // already.
  void end(int exit_code, const std::string& message);
  // Throws FileError (exit 74) when metrics.jsonl is not whole.
  void close();

 private:
  void print_event(std::string_view line);
  void print_result();

  Options options_;
  RunDir& run_;
  Console& console_;
  EventLog events_;
  std::string result_;           // the last epoch or evaluation
  std::optional<RunMeta> meta_;  // both from the start on
  std::optional<RunLog> log_;
};

}  // namespace meshtrain
