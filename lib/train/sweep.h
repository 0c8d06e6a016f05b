// Sweeps: many runs of one config, each with other values, some at a time. A run is a process of
// this program, so that one that fails or is killed takes no other with it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/slurm_script.h"
#include "train/sweep_plan.h"

namespace meshtrain {

struct SweepRequest {
  LoadOptions load;  // files: configs, a sweep file, or the folder of a sweep to resume
  SweepFlags flags;
  std::string dir;      // -o; "": sweeps/NAME/ID
  bool resume = false;  // the sweep in `dir`, or the newest of that name
  bool retry = false;   // failed runs again, too
  int64_t threads = 0;  // of each run; 0: a share of the cores
  std::string version;
  std::vector<std::string> command_line;
  bool is_quiet = false;
  bool prints_events = false;  // the journal's lines, in place of text
  std::function<void(std::string_view)> out, err;
};

// Runs what is not done yet. Each run goes into a folder of the sweep's own; an interrupted one
// resumes from its newest checkpoint. `dir` becomes the sweep's folder. Returns 0, 7 when a run
// failed, 75 when a signal asked to stop. Throws ConfigError: as make_sweep_plan(), E141 for a
// folder that holds another sweep, E149 for a config that changed since the sweep began, E455 when
// another process runs it.
int run_sweep(SweepRequest request, std::string& dir);

// Returns a line for each run: its folder and values. Throws as make_sweep_plan().
std::string sweep_listing(const SweepRequest& request);
// The batch script of a job array with a task for each run that is not done; its folder is named
// but not made.
std::string sweep_slurm_script(const SweepRequest& request, const SlurmOptions& slurm);
// Makes the sweep's folder and journal and submits that script from there. Throws as run_sweep(),
// and E148 without sbatch. Returns the exit code of sbatch.
int submit_sweep(const SweepRequest& request, const SlurmOptions& slurm);

// The command of a member, after the program's name.
std::vector<std::string> member_words(const SweepPlan& plan, const SweepValues& values,
                                      const std::string& run_dir);

}  // namespace meshtrain
