// meshtrain train: build, fit, save, evaluate.
#include <algorithm>
#include <cctype>

#include "config/scalars.h"
#include "engine/make_plan.h"
#include "train/training_run.h"
#include "train_options.h"

namespace meshtrain {
namespace {

int show_dry_run(const TrainOptions& options) {
  const PlanSummary plan = plan_config(load_config(options.load(false)), 0, options.engine.dump_ir);
  out_stream().write(options.output.is_json() ? plan_json(plan) : plan_text(plan));
  if (options.output.is_json()) {
    show_warnings(plan.warnings, options.output.quiet);  // the text has them
  }
  return 0;
}

constexpr int64_t kMostProfiled = 10000;  // steps: their trace has some hundred bytes a kernel

// `--profile 20` measures steps: a number is no name of a block.
bool is_number(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

LoadOptions TrainOptions::load(bool require_data) const {
  LoadOptions options = config.load(require_data, !resume.empty());
  if (is_number(options.profile)) {
    options.profile.clear();
  }
  return options;
}

int64_t TrainOptions::profile_steps() const {
  if (!is_number(config.profile)) {
    return measured_steps;
  }
  if (measured_steps > 0) {
    throw ConfigError("E140", {},
                      fmt::format("--profile {} and --profile-steps {} both say how many steps to "
                                  "measure; give one of them",
                                  config.profile, measured_steps));
  }
  const std::optional<int64_t> steps = try_integer(config.profile);
  if (!steps || *steps < 1 || *steps > kMostProfiled) {
    throw ConfigError(
        "E140", {},
        fmt::format("--profile {} must be a number of steps from 1 to {}, or the name "
                    "of a block of `profiles`",
                    config.profile, kMostProfiled));
  }
  return *steps;
}

void TrainOptions::add_to(CLI::App& app) {
  config.add_to(app);
  app.get_option("--profile")
      ->description("A named block of overrides in the file; a number: as --profile-steps")
      ->type_name("NAME|N");
  app.add_option("--profile-steps", measured_steps,
                 "Measure each kernel over N steps, and write profile/ in the run's folder")
      ->type_name("N")
      ->check(whole_number(1, kMostProfiled));
  add_run_dir_flag(app, run_dir, "Where results go; default runs/NAME/ID, never overwritten");
  app.add_flag(
         "-r{auto},--resume{auto}", resume,
         "Resume from a checkpoint. Alone, or auto: from the newest, else a new run. latest and "
         "best require one; PATH is a run or a checkpoint. As --resume=best")
      ->option_text("[=auto|latest|best|PATH]")
      ->group("Resuming");
  resuming.add_to(app, config);
  engine.add_to(app);
  output.add_to(app);
  output.add_verbose(app);
  app.add_option("--restarts", restarts,
                 "Start again from the newest checkpoint when a process or host was lost, at most "
                 "N times")
      ->type_name("N")
      ->check(whole_number(0, 1000000))
      ->group(kProcessesGroup);
}

int run_train(const TrainOptions& options, Invocation& invocation) {
  if (options.dry_run) {
    return show_dry_run(options);
  }
  if (options.restarts > 0 && invocation.processes.size() > 1) {
    throw ConfigError("E140", {},
                      "--restarts is for what starts the processes: meshtrain launch --restarts N");
  }
  check_allowed_keys(options.resuming.restore.allow);
  RunRequest request = run_request(invocation, options.load(true), options.output, options.engine);
  request.run_dir = options.run_dir;
  request.engine.profile_steps = options.profile_steps();
  request.restore = options.resuming.restore;
  TrainingRun run(std::move(request));
  const std::string mode = resume_mode(options.resume, run.config());
  const ConfigObject* backup = deciding_backup(options.resume, run.config());
  if (options.resuming.restore.partial && options.resume.empty() && mode == "never" &&
      backup == nullptr && run.config().fit.initial_weights->empty()) {
    throw ConfigError("E140", {},
                      "--partial has nothing to take weights from: name a file "
                      "(fit.initial_weights=FILE) or a checkpoint (--resume=PATH)");
  }
  if (const std::optional<int> code = run_own_processes(options.launch_request(invocation),
                                                        run.config(), invocation.processes)) {
    return *code;
  }
  const RunDirOptions place = run_dir_options(options.run_dir, run.config());
  ResumeTarget target = agree_on_target(run.coordinator(), [&] {
    ResumeTarget found =
        backup != nullptr ? find_interrupted_run(*backup, place) : find_resume_target(mode, place);
    found.gathers = gathers(run.config());
    return found;
  });
  if (mode == "auto" && !target.reader) {
    show_unless(options.output.quiet)("no checkpoint to resume from: a new run\n");
  }
  // For a reader of its own; with -q it is the result.
  invocation.result_is_on_stdout = options.output.is_json() || options.output.quiet;
  return run.run(std::move(target), invocation.started);
}

void add_train(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<TrainOptions>("train", "Build the model, fit, evaluate", run_train);
  options.add_to(app);
  app.add_flag("-n,--dry-run", options.dry_run, "Show the plan and stop");
  subcommand.json_run = [&options = options] {
    return options.dry_run ? std::nullopt : json_run(options.output, options.config);
  };
  subcommand.shared = [&app = app, &options = options]() -> std::optional<SharedCommand> {
    if (options.dry_run) {
      return std::nullopt;
    }
    return SharedCommand{
        .flags = flags_text(app, {"--run-dir", "--resume", "--allow", "--reset-cursor",
                                  "--reset-optimizer", "--partial"}),
        .load = [&options] { return options.load(true); },
        .begins_run = options.resume.empty(),
        .resume_command = "the same command with --resume"};
  };
}

}  // namespace meshtrain
