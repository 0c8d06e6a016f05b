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
#include "record/run_list.h"
#include "train/resume_target.h"
#include "train/training_run.h"

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

// The folder of the run that the job continues, or that -o names; "": a new one. What is wrong
// with a checkpoint is found here, not after the time in the queue.
std::string run_of_job(const LaunchRequest& request, const Config& config, const std::string& mode,
                       const RunDirOptions& place) {
  if (const ConfigObject* backup = deciding_backup(request.resume, config)) {
    const std::string found = interrupted_run(*backup, place);
    return found.empty() ? place.dir : found;
  }
  if (mode == "never") {
    return place.dir;
  }
  if (mode == "auto") {
    return place.dir.empty() ? newest_run(runs_folder(place)) : place.dir;
  }
  const ResumeTarget target = find_resume_target(mode, place);
  Diagnostics diagnostics;
  check_run_dir(target.run, diagnostics);
  diagnostics.throw_if_errors();
  return target.run.dir;
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

SlurmJob slurm_job(const LaunchRequest& request, const Config& config) {
  const RunDirOptions place = run_dir_options(request.run_dir, config);
  const std::string mode = resume_mode(request.resume, config);
  SlurmJob out{.name = place.name, .dir = run_of_job(request, config, mode, place)};
  const bool is_new = out.dir.empty() || !is_run_dir(out.dir);
  if (out.dir.empty()) {
    out.dir = runs_folder(place) + "/" + new_folder_name();
  }
  const auto starts = [&](const std::vector<std::string>& words, const std::string& from) {
    std::vector<std::string> start = words;
    start.insert(start.end(), {"--run-dir=" + out.dir, "--resume=" + from});
    return start;
  };
  const std::vector<std::string> given = without_flags(request.words, {"--run-dir", "--resume"});
  out.words = starts(given, mode == "never" ? "auto" : mode);
  out.again = starts(without_flags(given, {"--reset-cursor", "--reset-optimizer"}), "auto");
  if (out.again == out.words) {
    out.again.clear();
  }
  // A resume gives up what is newer than the checkpoint that it begins from.
  out.has_begun =
      is_new ? "compgen -G " + shell_quoted({out.dir + "/checkpoints/"}) + "'[0-9]*' >/dev/null"
             : "[ \"${SLURM_RESTART_COUNT:-0}\" -gt 0 ]";
  return out;
}

std::string slurm_script(const SlurmOptions& options, const SlurmJob& job) {
  std::string out = head(options, job.name, "slurm-%x-%j.out") + change_folder();
  std::vector<std::string> command = {program_path()};
  if (job.again.empty()) {
    command.insert(command.end(), job.words.begin(), job.words.end());
    out += fmt::format("{} {}\n", srun(options), shell_quoted(command));
  } else {
    out += fmt::format(
        "if {}; then  # queued again: from the newest checkpoint\n  set -- {}\nelse\n"
        "  set -- {}\nfi\n{} {} \"$@\"\n",
        job.has_begun, shell_quoted(job.again), shell_quoted(job.words), srun(options),
        shell_quoted(command));
  }
  return out + tail("$SLURM_JOB_ID");
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
