// meshtrain runs prune: deletes what old runs no longer need.
#include <ctime>
#include <filesystem>
#include <map>

#include "base/text.h"
#include "config/interval.h"
#include "config/run_files.h"
#include "output.h"
#include "record/run_list.h"
#include "record/run_summary.h"
#include "subcommand.h"
#include "train/sweep_journal.h"

namespace meshtrain {
namespace {

struct RunsPruneOptions {
  std::string folder = "runs", older;
  int64_t keep = -1;  // -1: not given
  bool failed = false, checkpoints = false, dry_run = false;
};

bool is_failed(const RunSummary& run) {
  return run.exit_code && *run.exit_code != 0 &&
         *run.exit_code != static_cast<int>(ExitCode::kStopped);
}

// Seconds of --older; 0: not given.
double seconds_of(const std::string& text) {
  if (text.empty()) {
    return 0;
  }
  // Without a unit, 7 would be seconds where days are meant.
  const bool has_unit = text.find_first_not_of("0123456789.") != std::string::npos;
  if (const auto seconds = parse_duration(text); seconds && has_unit) {
    return *seconds;
  }
  refuse("E140", fmt::format("--older: `{}` is no duration", text), "write 7d, 12h or 30min");
}

// The runs that the flags choose: all, where only --checkpoints is given.
std::vector<std::string> chosen_runs(const RunsPruneOptions& options) {
  const double older = seconds_of(options.older);
  const auto now = static_cast<double>(std::time(nullptr));
  std::map<std::string, std::vector<std::string>> by_folder;
  for (const std::string& run : find_runs(options.folder)) {
    by_folder[std::filesystem::path(run).parent_path().string()].push_back(run);
  }
  std::vector<std::string> out;
  for (auto& [folder, runs] : by_folder) {
    if (options.keep >= 0) {
      if (is_sweep_dir(folder)) {
        continue;  // its runs belong together
      }
      runs.resize(static_cast<size_t>(std::max<int64_t>(0, std::ssize(runs) - options.keep)));
    }
    for (const std::string& run : runs) {
      const RunSummary summary = summarize_run(read_run_record(run));
      const bool is_running = !summary.exit_code;
      const bool is_tagged = !options.checkpoints && !read_notes(run).tags.empty();
      const bool is_old = now - static_cast<double>(last_written(run)) >= older;
      const bool has_all = !options.checkpoints || has_weights(run);
      if (!is_running && !is_tagged && is_old && has_all &&
          (!options.failed || is_failed(summary)) &&
          (options.failed || !options.checkpoints || summary.exit_code == 0)) {
        out.push_back(run);
      }
    }
  }
  return out;
}

int run_runs_prune(const RunsPruneOptions& options, Invocation&) {
  if (options.keep < 0 && options.older.empty() && !options.failed && !options.checkpoints) {
    refuse("E140", "`prune` needs a selection",
           "--keep 3, --older 7d, --failed, or --checkpoints of all runs");
  }
  int64_t bytes = 0;
  size_t count = 0;
  int code = 0;
  for (const std::string& run : chosen_runs(options)) {
    const int64_t size = run_bytes(options.checkpoints ? run + "/" + run_files::kCheckpoints : run);
    try {
      if (!options.dry_run) {
        options.checkpoints ? static_cast<void>(remove_checkpoints(run)) : remove_run(run);
      }
    } catch (const ConfigError& error) {  // another process uses it since
      show_warnings(error.diagnostics());
      code = static_cast<int>(error.exit_code());
      continue;
    }
    bytes += size;
    ++count;
    out_stream().write(fmt::format("{}{}  {}\n", run, options.checkpoints ? "/checkpoints" : "",
                                   format_bytes(size)));
  }
  err_stream().write(fmt::format("{} of {} runs: {}\n", options.dry_run ? "would free" : "freed",
                                 count, format_bytes(bytes)));
  return code;
}

}  // namespace

void add_runs_prune(Subcommands& to) {
  auto [app, options, subcommand] = to.add<RunsPruneOptions>(
      "runs prune", "Delete old or failed runs, or the checkpoints of finished ones",
      run_runs_prune);
  app.add_option("FOLDER", options.folder, "Where to look, also below; default runs");
  app.add_option("--keep", options.keep, "The N newest runs of each name stay; sweeps stay whole")
      ->type_name("N")
      ->check(whole_number(0, 1000000));
  app.add_option("--older", options.older, "Only runs whose last event is that old")
      ->type_name("7d|12h");
  app.add_flag("--failed", options.failed, "Only runs that failed");
  app.add_flag("--checkpoints", options.checkpoints,
               "Only the checkpoints of runs that have their final weights");
  app.add_flag("-n,--dry-run", options.dry_run, "Show what would be deleted");
  app.footer(
      "Runs without a recorded end are never deleted: they may be running, or resumed. Nor are\n"
      "runs with a tag.");
}

}  // namespace meshtrain
