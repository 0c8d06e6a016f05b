// meshtrain runs rm: deletes runs.
#include <map>

#include "output.h"
#include "record/run_dir.h"
#include "record/run_list.h"
#include "subcommand.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

struct RunsRmOptions {
  std::vector<std::string> runs;
};

int run_runs_rm(const RunsRmOptions& options, Invocation&) {
  std::map<std::string, std::string> named;      // run -> as it was written
  for (const std::string& run : options.runs) {  // all or none, before `latest` moves
    if (!is_run_dir(run)) {
      no_run_in(run);
    }
    named.emplace(resolved_run(run), run);
  }
  for (const auto& [run, written] : named) {
    remove_run(run);
    out_stream().write(written + "\n");
  }
  return 0;
}

}  // namespace

void add_runs_rm(Subcommands& to) {
  auto [app, options, subcommand] = to.add<RunsRmOptions>(
      "runs rm", "Delete runs, with everything in their folders", run_runs_rm);
  app.add_option("RUN", options.runs, "Runs that no process uses")->required();
}

}  // namespace meshtrain
