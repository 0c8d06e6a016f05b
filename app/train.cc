// meshtrain train and resume: build, fit, save, evaluate.
#include <fmt/format.h>

#include "checkpoint/restore.h"
#include "config/source.h"
#include "restarts.h"
#include "run_request.h"
#include "train/training_run.h"

namespace meshtrain {
namespace {

constexpr const char* kConfigName = "config.resolved.yaml";

// The config is the checkpoint's, with what the command line changes.
LoadOptions resume_options(const Arguments& arguments, const CheckpointReader& reader,
                           const std::string& path) {
  LoadOptions options = override_options(arguments);
  refuse_profile(arguments, arguments.target);
  if (!options.files.empty()) {
    throw ConfigError(
        "E140", {},
        fmt::format("`{}` is no KEY=VALUE; resume takes the config of the run", options.files[0]));
  }
  options.source = checked_source(path + "/" + kConfigName, reader.text(kConfigName));
  return options;
}

}  // namespace

int run_train(const Arguments& arguments, bool& started) {
  if (arguments.restarts > 0 && arguments.processes.size() > 1) {
    throw ConfigError("E140", {},
                      "--restarts is for what starts the processes: meshtrain launch --restarts N");
  }
  check_allowed_keys(arguments.allow);
  TrainingRun run(run_request(arguments, load_options(arguments, true)));
  const std::string mode = resume_mode(arguments.resume, run.config());
  const ConfigObject* backup = deciding_backup(arguments.resume, run.config());
  if (arguments.partial && arguments.resume.empty() && mode == "never" && backup == nullptr &&
      run.config().fit.initial_weights->empty()) {
    throw ConfigError("E140", {},
                      "--partial has nothing to take weights from: name a file "
                      "(fit.initial_weights=FILE) or a checkpoint (--resume=PATH)");
  }
  if (const std::optional<int> code = run_own_processes(arguments, run.config())) {
    return *code;
  }
  const RunDirOptions place = run_dir_options(arguments.run_dir, run.config());
  ResumeTarget target = agree_on_target(run.coordinator(), [&] {
    ResumeTarget found =
        backup != nullptr ? find_interrupted_run(*backup, place) : find_resume_target(mode, place);
    found.gathers = gathers(run.config());
    return found;
  });
  return run.run(std::move(target), started);
}

int run_resume(const Arguments& arguments, bool& started) {
  check_allowed_keys(arguments.allow);
  const double started_at = seconds_now();
  if (arguments.processes.group == nullptr) {  // others than this one may verify the rest
    const ResumeTarget seen = open_resume_path(
        arguments.target, [](const CheckpointReader& reader) { reader.text(kConfigName); });
    if (const std::optional<int> code = run_own_processes(
            arguments, load_config(resume_options(arguments, *seen.reader, seen.reader->path())))) {
      return *code;
    }
  }
  ResumeTarget target = agree_on_target(Coordinator(arguments.processes, seconds_now), [&] {
    ResumeTarget found = open_resume_path(arguments.target);
    found.gathers =
        gathers(load_config(resume_options(arguments, *found.reader, found.reader->path())));
    return found;
  });
  RunRequest request =
      run_request(arguments, resume_options(arguments, *target.reader, target.path));
  request.started_at = started_at;
  TrainingRun run(std::move(request));
  const RunDirOptions given = run_dir_options(arguments.run_dir, run.config());
  target.run.name = given.name;
  if (!arguments.run_dir.empty()) {
    target.run.dir = arguments.run_dir;
    target.run.resume = target.own = false;
  }
  return run.run(std::move(target), started);
}

}  // namespace meshtrain
