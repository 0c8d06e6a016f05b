#include "train/slurm_script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/durable_file.h"
#include "base/file.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/child_processes.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

std::string head(const SlurmOptions& options, const std::string& name, const char* output) {
  std::string out =
      fmt::format("#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --output={}\n", name, output);
  out += options.nodes > 0 ? fmt::format("#SBATCH --nodes={}\n", options.nodes) : "";
  out += options.tasks > 0 ? fmt::format("#SBATCH --ntasks={}\n", options.tasks) : "";
  for (const std::string& option : options.options) {
    out += fmt::format("#SBATCH {}\n", option);
  }
  // 120 s before the time is over the tasks get SIGUSR1: they save and end with 75.
  return out + "#SBATCH --signal=USR1@120\n#SBATCH --requeue\n#SBATCH --open-mode=append\n\n";
}

std::string tail(const char* job) {
  return fmt::format(
      "code=$?\n"
      "if [ $code -eq 75 ]; then  # saved and stopped: the job resumes when it runs again\n"
      "  scontrol requeue \"{}\"\n"
      "fi\n"
      "exit $code\n",
      job);
}

// Several tasks find each other by PMIx.
std::string srun(const SlurmOptions& options) {
  return options.tasks > 1 || options.nodes > 1 ? "srun --mpi=pmix" : "srun --ntasks=1";
}

std::string change_folder() {
  std::error_code error;
  return "cd " + shell_quoted({fs::current_path(error).string()}) + " || exit 1\n";
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string slurm_script(const SlurmOptions& options, const std::string& name,
                         const std::vector<std::string>& words) {
  std::vector<std::string> command = {program_path()};
  command.insert(command.end(), words.begin(), words.end());
  return head(options, name, "slurm-%x-%j.out") + change_folder() +
         fmt::format("{} {}\n", srun(options), shell_quoted(command)) + tail("$SLURM_JOB_ID");
}

std::string slurm_array_script(const SlurmOptions& options, const std::string& name,
                               const std::vector<std::vector<std::string>>& commands,
                               int64_t parallel) {
  SlurmOptions array = options;
  array.options.insert(array.options.begin(),
                       fmt::format("--array=1-{}{}", commands.size(),
                                   parallel > 1 ? fmt::format("%{}", parallel) : std::string()));
  std::string out = head(array, name, "slurm-%x-%A_%a.out") + change_folder() +
                    "case \"$SLURM_ARRAY_TASK_ID\" in\n";
  for (size_t i = 0; i < commands.size(); ++i) {
    out += fmt::format("  {}) set -- {} ;;\n", i + 1, shell_quoted(commands[i]));
  }
  return out + fmt::format("esac\n{} {} \"$@\"\n", srun(options), shell_quoted({program_path()})) +
         tail("${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}");
}

int submit_script(const std::string& path, const std::string& script,
                  const std::function<void(std::string_view)>& show) {
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) {
    make_folders(folder.string());
  }
  write_file_atomic(path, script);
  if (!is_on_path("sbatch")) {
    show(script);
    throw ConfigError("E148", {}, "there is no `sbatch` on PATH: nothing was submitted")
        .help(
            fmt::format("the script is above and in {}: `sbatch {}` on a login node", path, path));
  }
  return run_children({{"sbatch", {"sbatch", path}, {}}}, {}).exit_code;
}

}  // namespace meshtrain
