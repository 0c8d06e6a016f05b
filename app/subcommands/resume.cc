// meshtrain resume: continues a run, from its own folder.
#include <filesystem>

#include "base/host.h"
#include "config/run_files.h"
#include "config/source.h"
#include "run_flags.h"
#include "train/moved_run.h"
#include "train/training_run.h"

namespace meshtrain {
namespace {

struct ResumeOptions {
  std::string target;  // a run, or one of its checkpoints
  ConfigWords config;  // without files
  std::string run_dir;
  ResumeFlags resuming;
  EngineFlags engine;
  OutputFlags output;
};

// The config of a checkpoint. The run's own file is taken where it says the same: it also has the
// places where the user wrote the values.
std::shared_ptr<const SourceFile> config_of(const CheckpointReader& reader,
                                            const std::string& path) {
  const std::string text = reader.text(run_files::kResolved);
  const auto run = std::filesystem::path(path).parent_path().parent_path();
  try {
    if (auto own = read_source((run / run_files::kResolved).string(), {});
        without_origins(*own) == text) {
      return own;
    }
  } catch (const ConfigError&) {
    // a checkpoint without its run
  }
  return checked_source(path + "/" + run_files::kResolved, text);
}

// The config is the checkpoint's, with what the command line changes.
LoadOptions load_options(const ResumeOptions& options, const CheckpointReader& reader,
                         const std::string& path) {
  LoadOptions load = options.config.overrides();
  refuse_profile(options.config.profile, options.target);
  if (!load.files.empty()) {
    throw ConfigError(
        "E140", {},
        fmt::format("`{}` is no KEY=VALUE; resume takes the config of the run", load.files[0]));
  }
  load.source = config_of(reader, path);
  follow_move(path, load);
  return load;
}

int run_resume(const ResumeOptions& options, Invocation& invocation) {
  check_allowed_keys(options.resuming.restore.allow);
  const double started_at = steady_seconds();
  const LaunchRequest launch{invocation.given_words, 0, options.run_dir, ""};
  const RunAccess access = options.run_dir.empty() ? RunAccess::kContinue : RunAccess::kRead;
  if (invocation.processes.group == nullptr) {  // others than this one may verify the rest
    const ResumeTarget seen = open_resume_path(
        options.target, [](const CheckpointReader& reader) { reader.text(run_files::kResolved); },
        access);
    const Config config = load_config(load_options(options, *seen.reader, seen.reader->path()));
    if (const std::optional<int> code = run_own_processes(launch, config, invocation.processes)) {
      return *code;
    }
  }
  ResumeTarget target = agree_on_target(Coordinator(invocation.processes, steady_seconds), [&] {
    ResumeTarget found = open_resume_path(options.target, &CheckpointReader::verify, access);
    found.gathers =
        gathers(load_config(load_options(options, *found.reader, found.reader->path())));
    return found;
  });
  RunRequest request = run_request(invocation, load_options(options, *target.reader, target.path),
                                   options.output, options.engine);
  request.shown_name = options.target;
  request.run_dir = options.run_dir;
  request.restore = options.resuming.restore;
  request.started_at = started_at;
  TrainingRun run(std::move(request));
  const RunDirOptions given = run_dir_options(options.run_dir, run.config());
  target.run.name = given.name;
  if (!options.run_dir.empty()) {
    target.run.dir = options.run_dir;
    target.run.resume = target.own = false;
  }
  // For a reader of its own; with -q it is the result.
  invocation.result_is_on_stdout = options.output.is_json() || options.output.quiet;
  return run.run(std::move(target), invocation.started);
}

}  // namespace

void add_resume(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<ResumeOptions>("resume", "Continue a run, from its own folder", run_resume);
  app.add_option("RUN", options.target, "A run, or one of its checkpoints")->required();
  app.add_option("KEY=VALUE", options.config.words,
                 "What changes: key.path=value, ~key, list+=item");
  options.config.add_flags(app);
  add_run_dir_flag(app, options.run_dir, "A new run, which begins from that checkpoint");
  options.resuming.add_to(app, options.config);
  options.engine.add_threads(app);
  options.output.add_to(app);
  options.output.add_verbose(app);
  subcommand.json_run = [&options = options] { return json_run(options.output, options.config); };
  subcommand.shared = [&app = app, &options = options] {
    return SharedCommand{.flags = flags_text(app, {"RUN", "--run-dir", "--allow", "--reset-cursor",
                                                   "--reset-optimizer", "--partial"}),
                         .load = [&options] { return options.config.overrides(); },
                         .has_config = false,
                         .resume_command = "the same command"};
  };
}

}  // namespace meshtrain
