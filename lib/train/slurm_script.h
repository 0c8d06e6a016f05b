// Batch scripts for Slurm: a training, or a sweep as a job array.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/restarts.h"

namespace meshtrain {

struct SlurmOptions {
  int64_t nodes = 0, tasks = 0;      // 0: as Slurm decides; tasks: processes of a run
  std::vector<std::string> options;  // "--partition=gpu", as sbatch takes them
};

// A training as a job: what its starts are, each a command after the program's name.
struct SlurmJob {
  std::string name, dir;           // of the run
  std::vector<std::string> words;  // of the first start
  std::vector<std::string> again;  // of one that continues the first one; empty: `words`
  std::string has_begun;           // shell: whether the first start has left something to continue
};

// The folder of the run is chosen now: every start of the job finds the same. Throws ConfigError
// E400 (exit 6) where there is nothing to resume from, and as find_resume_target() does.
SlurmJob slurm_job(const LaunchRequest& request, const Config& config);

// A script that runs the job's command on all its tasks. Slurm sends SIGUSR1 120 s before the time
// is over; a run that saved and stopped (exit code 75) is queued again and resumes.
std::string slurm_script(const SlurmOptions& options, const SlurmJob& job);
// The same for a job array: task N of 1, 2, ... runs `commands[N - 1]`, at most `parallel` at a
// time.
std::string slurm_array_script(const SlurmOptions& options, const std::string& name,
                               const std::vector<std::vector<std::string>>& commands,
                               int64_t parallel);

// Writes the script to `path` and gives it to sbatch, which prints the job's number. Where there is
// no sbatch: shows the script and throws ConfigError E148. Returns the exit code of sbatch.
int submit_script(const std::string& path, const std::string& script,
                  const std::function<void(std::string_view)>& show);

}  // namespace meshtrain
