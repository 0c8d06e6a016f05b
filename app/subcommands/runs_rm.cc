// meshtrain runs rm: deletes runs.
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
  for (const std::string& run : options.runs) {  // all or none
    if (!is_run_dir(run)) {
      no_run_in(run);
    }
  }
  for (const std::string& run : options.runs) {
    remove_run(resolved_run(run));
    out_stream().write(run + "\n");
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
