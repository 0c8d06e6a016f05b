// meshtrain train and resume: build, fit, save, evaluate.
#include <fmt/format.h>

#include "config/source.h"
#include "training_run.h"

namespace meshtrain {
namespace {

int train(const Arguments& arguments, bool& started) {
  const double started_at = seconds_now();
  TrainingRun run(arguments, load_options(arguments, true), started_at);
  const RunDirOptions place = run_dir_options(arguments, run.config());
  const Located<std::string>& configured = run.config().run.resume;
  const ConfigObject* backup = run.config().callback("BackupAndRestore");
  const bool said = !arguments.resume.empty() || configured.value != "never";
  ResumeTarget target =
      backup != nullptr && !said
          ? find_interrupted_run(*backup, place)
          : find_resume_target(arguments.resume.empty() ? configured.value : arguments.resume,
                               place);
  return run.run(std::move(target), started);
}

// The config is the checkpoint's, with what the command line changes.
int resume(const Arguments& arguments, bool& started) {
  const double started_at = seconds_now();
  ResumeTarget target = open_resume_path(arguments.target);
  LoadOptions options = override_options(arguments);
  if (!options.files.empty()) {
    throw ConfigError(
        "E140", {},
        fmt::format("`{}` is no KEY=VALUE; resume takes the config of the run", options.files[0]));
  }
  const std::string name = target.reader->path() + "/config.resolved.yaml";
  options.source = checked_source(name, target.reader->text("config.resolved.yaml"));
  TrainingRun run(arguments, std::move(options), started_at);
  const RunDirOptions given = run_dir_options(arguments, run.config());
  target.run.name = given.name;
  if (!arguments.run_dir.empty()) {
    target.run.dir = arguments.run_dir;
    target.run.resume = target.own = false;
  }
  return run.run(std::move(target), started);
}

void add_resume_flags(CLI::App& verb, Arguments& a) {
  verb.add_option("--allow", a.allow, "A key that may differ from the checkpoint's all the same")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->group("Resuming");
  verb.add_flag("--reset-cursor", a.reset_cursor, "Begin the running epoch anew")
      ->group("Resuming");
  verb.add_flag("--reset-optimizer", a.reset_optimizer, "Take the weights alone")
      ->group("Resuming");
  verb.add_option("--max-time", a.max_time,
                  "Save and leave before this time is over [key: run.max_time]")
      ->type_name("23h30m")
      ->group("Config keys");
}

}  // namespace

void add_train(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb = *command.app.add_subcommand("train", "Build the model, fit, evaluate");
  add_config_arguments(verb, a);
  verb.add_option("-o,--run-dir", a.run_dir,
                  "Where results go; default runs/NAME/ID, never overwritten")
      ->type_name("DIR");
  verb.add_flag("-n,--dry-run", a.dry_run, "Show the plan and stop");
  verb.add_flag("-r,--resume{auto}", a.resume,
                "Go on from a checkpoint: --resume, --resume=auto (or start afresh), latest, best "
                "or a path")
      ->group("Resuming");
  add_resume_flags(verb, a);
  verb.add_flag("--partial", a.partial,
                "Take what fits of fit.initial_weights; the rest is drawn, and named in a warning");
  verb.add_option("--dump-ir", a.dump_ir, "Write the graph after each pass")->type_name("DIR");
  add_output_flags(verb, a);
  verb.callback([command] {
    command.action = [command] {
      const Arguments& arguments = command.arguments;
      return arguments.dry_run ? show_plan(arguments) : train(arguments, command.started);
    };
  });
}

void add_resume(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb = *command.app.add_subcommand("resume", "Go on with a run, from its own folder");
  verb.add_option("RUN", a.target, "A run, or one of its checkpoints")->required();
  verb.add_option("KEY=VALUE", a.words, "What changes: key.path=value, ~key, list+=item");
  add_key_flags(verb, a);
  verb.add_option("-o,--run-dir", a.run_dir, "A new run, which begins from that checkpoint")
      ->type_name("DIR");
  add_resume_flags(verb, a);
  add_output_flags(verb, a);
  verb.callback([command] {
    command.action = [command] { return resume(command.arguments, command.started); };
  });
}

}  // namespace meshtrain
