// meshtrain train: build, fit, save, evaluate.
#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "cli.h"
#include "config/flow.h"
#include "config/source.h"
#include "resume.h"
#include "train/adapt.h"
#include "train/callbacks/make_callbacks.h"
#include "train/checkpointer.h"
#include "train/engine.h"
#include "train/events.h"
#include "train/make_plan.h"
#include "train/restore.h"
#include "train/run_data.h"
#include "train/run_dir.h"
#include "train/save_model.h"
#include "train/signals.h"
#include "train/weights.h"

namespace meshtrain {
namespace {

RunInfo describe_run(const Arguments& arguments, const Setup& setup, const PlanReport& plan,
                     const RunData& data, const std::string& run_dir) {
  const Config& config = setup.config();
  const FitConfig& fit = config.fit;
  const int64_t batches =
      count_batches(data.train->num_samples, fit.batch_size, config.data.remainder.value == "drop");
  RunInfo info;
  info.version = kVersion;
  for (const std::string& file : override_options(arguments).files) {
    info.config += (info.config.empty() ? "" : " ") + file;
  }
  info.config = info.config.empty() ? arguments.target : info.config;
  info.name = config.name;
  info.run_dir = run_dir;
  info.seed = config.seed;
  info.dtype_policy = config.dtype_policy;
  info.mesh_shape = setup.mesh().shape();
  info.axis_names = setup.mesh().axis_names();
  info.devices = fmt::format("{} on {} threads", plan.devices, std::thread::hardware_concurrency());
  info.batch_size = fit.batch_size;
  info.batch_axis = plan.batch_axes;
  info.batch_shards = plan.batch_shards;
  info.steps_per_epoch = batches > 0 ? plan_epoch(fit, batches, fit.initial_epoch).target : 0;
  info.initial_epoch = fit.initial_epoch;
  info.epochs = fit.epochs;
  info.samples = data.train->num_samples;
  info.validation_samples = data.validation ? data.validation->num_samples : 0;
  for (const Weight* weight : setup.model().weights()) {
    info.parameters += num_elements(weight->shape);
    info.parameter_bytes +=
        num_elements(weight->shape) * static_cast<int64_t>(dtype_size(weight->dtype));
  }
  info.bytes_per_device = plan.memory.weights + plan.memory.optimizer;
  return info;
}

// Events for stdout: all of them, or with -q the last result only.
class JsonOutput {
 public:
  explicit JsonOutput(bool quiet) : quiet_(quiet) {}

  void line(std::string_view line) {
    if (!quiet_) {
      out_stream().write(fmt::format("{}\n", line));
    } else if (line.find(R"({"event":"epoch")") == 0 || line.find(R"({"event":"evaluate")") == 0) {
      result_ = fmt::format("{}\n", line);
    }
  }
  void finish() { out_stream().write(result_); }

 private:
  bool quiet_;
  std::string result_;
};

// Fit and what follows it; everything was checked and made before.
void run_steps(const Config& config, Engine& engine, const RunData& data, const RunDir& run,
               Trainer& trainer) {
  trainer.fit(*data.train, data.validation ? &*data.validation : nullptr);
  save_weights(engine, run.file("weights.safetensors"));
  const Dataset* evaluated = data.part(evaluated_part(config));
  if (evaluated) {
    const int64_t batch_size = config.evaluate.batch_size > 0 ? config.evaluate.batch_size.value
                                                              : config.fit.batch_size.value;
    trainer.evaluate(*evaluated, batch_size, config.evaluate.steps);
  }
}

RunDirOptions run_dir_options(const Arguments& arguments, const Config& config) {
  RunDirOptions options;
  options.dir = arguments.run_dir.empty() ? config.run.dir.value : arguments.run_dir;
  options.dir_loc = arguments.run_dir.empty() ? config.run.dir.loc : SourceLoc{};
  options.name = config.name.value.empty() ? config.model.name.value : config.name.value;
  return options;
}

int exit_code_of_current_exception(std::string& message) {
  try {
    throw;
  } catch (const ConfigError& error) {
    message = error.diagnostics().list().empty() ? "" : error.diagnostics().list().back().message;
    return static_cast<int>(error.exit_code());
  } catch (const Error& error) {
    message = error.what();
    return static_cast<int>(error.exit_code());
  } catch (const std::bad_alloc&) {
    message = "out of memory";
    return static_cast<int>(ExitCode::kMesh);
  } catch (const std::exception& error) {
    message = error.what();
    return static_cast<int>(ExitCode::kUnexpected);
  }
}

// "every epoch, the 3 newest stay"
std::string saves_text(const CheckpointConfig& config) {
  const Interval& every = config.every;
  const auto plural = [&](const char* word) {
    return every.count == 1 ? fmt::format("every {}", word)
                            : fmt::format("every {:.0f} {}s", every.count, word);
  };
  switch (every.unit) {
    case Interval::Unit::kNever:
      return "when asked to by a signal, not by itself";
    case Interval::Unit::kSteps:
      return fmt::format("{}, the {} newest stay", plural("step"), config.keep.value);
    case Interval::Unit::kEpochs:
      return fmt::format("{}, the {} newest stay", plural("epoch"), config.keep.value);
    case Interval::Unit::kSeconds:
      break;
  }
  return fmt::format("every {} s, the {} newest stay", every.count, config.keep.value);
}

std::string sizes_text(const std::vector<MeshAxis>& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh) {
    out += fmt::format("{}{}", out.empty() ? "" : " x ", axis.size);
  }
  return out.empty() ? "1" : out;
}

void describe_resume(const CheckpointReader& reader, const TrainPosition& at,
                     const std::vector<ConfigChange>& changes, const DeviceMesh& mesh,
                     RunInfo& info) {
  info.resumed_from = reader.path();
  info.resumed_at = fmt::format("{} of epoch {} ({} steps in all)",
                                at.epoch_trained ? "the validation"
                                : at.batch == 0  ? "the beginning"
                                                 : fmt::format("after step {}", at.batch),
                                at.epoch + 1, at.step);
  const std::string before = sizes_text(reader.manifest().mesh), now = sizes_text(mesh.axes());
  if (before != now) {
    info.resumed_at += fmt::format("; re-laid from {} to {}", before, now);
  }
  for (const ConfigChange& change : changes) {
    info.changes.push_back({change.key, change.before, change.after});
  }
}

// The config as a checkpoint keeps it: complete, and with the place of the data, so that it can be
// used from anywhere.
std::string portable_config(LoadOptions options, const Config& config) {
  const std::string folder = config.data.base_dir.empty() ? "." : config.data.base_dir;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  options.overrides.push_back("data.dir=" + yaml_text(absolute.lexically_normal().string()));
  return show_config(options, false);
}

// One run from its config to its end, from the beginning or from a checkpoint.
class TrainingRun {
 public:
  TrainingRun(const Arguments& arguments, LoadOptions options, double started_at)
      : arguments_(arguments),
        options_(std::move(options)),
        config_(load_config(options_)),
        started_at_(started_at),
        portable_(portable_config(options_, config_)) {}

  const Config& config() const { return config_; }

  int run(ResumeTarget target, bool& started) {
    Diagnostics diagnostics;
    check_run_dir(target.run, diagnostics);
    diagnostics.throw_if_errors();
    catch_run_signals(config_.run.on_signal);
    RunData data = load_run_data(config_, true, evaluated_part(config_));
    check_batches(config_, *data.train);
    Engine engine(config_, data_spec(*data.train),
                  {.num_workers = 0, .dump_ir = arguments_.dump_ir});
    check_run_labels(engine.setup(), data);
    check_callbacks(engine.setup(), data.validation.has_value(), diagnostics);
    diagnostics.throw_if_errors();
    prepare(engine, data, target);
    const PlanReport plan = make_plan(engine.setup(), data.train->num_samples);
    Console console(console_options(arguments_, config_));
    EventLog events(config_.run.log_steps, config_.dtype_policy.value == "float64");
    const auto warn = [&](const std::string& message) { console.on_warning(message); };
    RunDir run(target.run, warn);
    CallbackList callbacks(callback_context(engine, run, console));
    add_callbacks(callbacks);
    Checkpointer checkpointer(engine, config_, *data.train,
                              checkpointer_options(target, run, callbacks, console));
    for (const auto& callback : callbacks.all()) {
      checkpointer.add_state(*callback);
    }
    if (target.reader) {
      checkpointer.resume(*target.reader, target.own);
    }
    if (target.run.resume) {
      run.rewind(position_);
    }
    write_run_files(run, plan);
    events.add_sink([&run](std::string_view line) { run.metrics().append(line); });
    JsonOutput json(arguments_.quiet);
    if (arguments_.log_format == "json") {
      events.add_sink([&json](std::string_view line) { json.line(line); });
    }
    RunInfo info = describe_run(arguments_, engine.setup(), plan, data, run.path());
    info.saves = saves_text(config_.checkpoint);
    if (target.reader) {
      describe_resume(*target.reader, position_, changes_, engine.mesh(), info);
    }
    show_start(info, plan, engine);
    started = true;
    events.start(info);
    Trainer trainer(engine, config_, seconds_now);
    trainer.add_observer(events);
    trainer.add_observer(console);
    trainer.set_callbacks(callbacks);
    trainer.set_control(checkpointer);
    if (target.reader) {
      trainer.start_at(position_);
    }
    try {
      run_steps(config_, engine, data, run, trainer);
    } catch (...) {
      console.interrupt();
      std::string message;
      const int code = exit_code_of_current_exception(message);
      events.end(code, message);
      throw;
    }
    console.finish();
    events.end(0);
    json.finish();
    run.metrics().close();
    return 0;
  }

 private:
  // The weights to begin with: of the checkpoint, of fit.initial_weights, or drawn.
  void prepare(Engine& engine, const RunData& data, const ResumeTarget& target) {
    warnings_ = target.warnings;
    if (target.reader) {
      changes_ = config_changes(target.reader->text("config.resolved.yaml"), portable_);
      position_ = restore(engine, *target.reader, data_cursor(*data.train, config_), changes_,
                          {.allow = arguments_.allow,
                           .reset_optimizer = arguments_.reset_optimizer,
                           .reset_cursor = arguments_.reset_cursor},
                          warnings_);
    } else if (!config_.fit.initial_weights.value.empty()) {
      load_weights(engine, config_.fit.initial_weights, config_.fit.initial_weights.loc,
                   &engine.model());
    } else {
      adapt_to_data(engine.model(), *data.train, engine);
    }
  }

  CallbackContext callback_context(Engine& engine, const RunDir& run, Console& console) const {
    return {.runner = engine,
            .config = config_,
            .run_dir = run.path(),
            .now = seconds_now,
            .print = [&console](const std::string& text) { console.on_message(text); },
            .warn = [&console](const std::string& text) { console.on_warning(text); },
            .save_model = [&engine](const std::string& path) { save_model(engine, path); }};
  }

  CheckpointerOptions checkpointer_options(const ResumeTarget& target, RunDir& run,
                                           CallbackList& callbacks, Console& console) const {
    CheckpointerOptions options;
    options.run_dir = run.path();
    options.written_by = fmt::format("meshtrain {}", kVersion);
    if (target.reader) {
      const std::string& run_id = target.reader->manifest().run_id;
      (target.own ? options.run_id : options.parent_run) = run_id;
    }
    options.texts = {{"config.yaml", config_.source_text}, {"config.resolved.yaml", portable_}};
    options.now = seconds_now;
    options.started_at = started_at_;
    options.warn = [&console](const std::string& text) { console.on_warning(text); };
    options.report = [&console](const std::string& text) {
      console.interrupt();
      err_stream().write(text + "\n");
    };
    options.inform = [this, report = options.report](const std::string& text) {
      if (arguments_.verbosity > 0) {
        report(text);
      }
    };
    options.before_commit = [&run, &callbacks, named = false]() mutable {
      callbacks.sync();
      named ? run.metrics().sync() : run.sync();  // its name needs that only once
      named = true;
    };
    return options;
  }

  void write_run_files(const RunDir& run, const PlanReport& plan) const {
    run.write("config.yaml", config_.source_text);
    run.write("config.resolved.yaml", show_config(options_, true));
    run.write("plan.txt", plan_text(plan));
    run.write("plan.json", plan_json(plan));
  }

  void show_start(const RunInfo& info, const PlanReport& plan, const Engine& engine) const {
    if (!arguments_.quiet) {
      err_stream().write(first_screen(info));
      if (!changes_.empty()) {
        err_stream().write("changed since\n" + changes_text(changes_));
      }
      err_stream().write(arguments_.verbosity > 0 ? "\n" + plan_text(plan) : "");
      for (const std::string& warning : warnings_) {
        err_stream().write(fmt::format("warning: {}\n", warning));
      }
    }
    show_warnings(engine.warnings(), arguments_);
  }

  const Arguments& arguments_;
  LoadOptions options_;
  Config config_;
  double started_at_;
  std::string portable_;
  std::vector<ConfigChange> changes_;
  std::vector<std::string> warnings_;
  TrainPosition position_;
};

int train(const Arguments& arguments, bool& started) {
  const double started_at = seconds_now();
  TrainingRun run(arguments, load_options(arguments, true), started_at);
  const std::string& flag = arguments.resume;
  ResumeTarget target = find_resume_target(flag.empty() ? run.config().run.resume.value : flag,
                                           run_dir_options(arguments, run.config()));
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
