#include "train/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/shared_folder.h"
#include "checkpoint/snapshot.h"
#include "config/callback_classes.h"
#include "config/run_files.h"
#include "engine/check_ids.h"
#include "engine/data_warnings.h"
#include "engine/epoch_plan.h"
#include "engine/signals.h"
#include "engine/state_batches.h"
#include "engine/weights.h"
#include "interop/save_model.h"
#include "record/run_dir.h"
#include "record/run_writer.h"
#include "train/callbacks/make_callbacks.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/text_samples.h"
#include "train/describe_run.h"
#include "train/expectations.h"
#include "train/initial_state.h"
#include "train/learned_file.h"
#include "train/loss_watch.h"
#include "train/portable_config.h"
#include "train/profile_hook.h"
#include "train/skip_watch.h"
#include "train/trainer.h"

namespace meshtrain {
namespace {

constexpr double kLongestCompilation = 900;  // seconds
// Seconds after which a process that does not see the folder, and need not, sends its files.
constexpr double kFolderTimeout = 2;

// Exit code and message of the exception that is being handled.
std::pair<int, std::string> end_of_exception() {
  try {
    throw;
  } catch (const ConfigError& error) {
    const std::vector<Diagnostic>& list = error.diagnostics().list();
    return {static_cast<int>(error.exit_code()), list.empty() ? "" : list.back().message};
  } catch (const Error& error) {
    return {static_cast<int>(error.exit_code()), error.what()};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(ExitCode::kMesh), "out of memory"};
  } catch (const std::exception& error) {
    return {static_cast<int>(ExitCode::kUnexpected), error.what()};
  }
}

}  // namespace

RunDirOptions run_dir_options(const std::string& run_dir, const Config& config) {
  RunDirOptions options;
  options.dir = run_dir.empty() ? config.run.dir.value : run_dir;
  options.dir_loc = run_dir.empty() ? config.run.dir.loc : SourceLoc{};
  options.name = config.name.value.empty() ? config.model.name.value : config.name.value;
  if (const char* name = std::getenv(kNewFolderVariable)) {
    options.new_folder = name;
  }
  return options;
}

bool gathers(const Config& config) {
  return config.checkpoint.gather == GatherFiles::kRoot;
}

TrainingRun::TrainingRun(RunRequest request)
    : request_(std::move(request)),
      config_(load_config(request_.load)),
      coordinator_(request_.engine.processes, request_.console.now),
      started_at_(request_.started_at),
      written_(config_.source_text),
      portable_(portable_config(request_.load, config_)) {}

void TrainingRun::drop_outside_callbacks() {
  std::erase_if(config_.callbacks, [](const ConfigObject& callback) {
    return callback_type(callback.class_name).writes_files || callback.class_name == "RunCommand";
  });
}

// Gives all processes the same config, folder and start time.
void TrainingRun::begin(const ResumeTarget& target) {
  if (request_.load.source && target.reader) {  // the config is the checkpoint's, with all defaults
    coordinator_.on_all_ranks("reading the config",
                              [&] { written_ = target.reader->text(run_files::kConfig); });
  }
  Diagnostics diagnostics;
  coordinator_.on_rank_zero("looking at the run's folder", [&] {
    check_run_dir(target.run, diagnostics);
    diagnostics.throw_if_errors();
  });
  started_at_ = parse_json(coordinator_.broadcast("the time", [&] {
                  return json_text(nlohmann::json(started_at_));
                })).get<double>();
  catch_run_signals(config_.run.on_signal);
}

std::unique_ptr<Engine> TrainingRun::compile(RunData& data) const {
  const auto announced = coordinator_.announce("compiling the model", kLongestCompilation);
  const DataSpec spec = data_spec(*data.train);
  EngineOptions options = request_.engine;
  options.decode = text_samples_decoding(config_, spec);
  auto engine = std::make_unique<Engine>(config_, spec, options);
  coordinator_.on_all_ranks("checking labels and ids",
                            [&] { check_run_ids(engine->setup(), data); });
  coordinator_.on_rank_zero("checking callbacks", [&] {  // who writes their files
    Diagnostics diagnostics;
    check_callbacks(engine->setup(), data.validation.has_value(), diagnostics);
    check_expectations(engine->setup(), data.validation.has_value(),
                       data.part(evaluated_part(config_)) != nullptr, diagnostics);
    diagnostics.throw_if_errors();
  });
  const auto samples = [](const Dataset* dataset) {
    return dataset == nullptr ? 0 : dataset->num_samples;
  };
  engine->prepare_run({samples(&*data.train),
                       samples(data.validation ? &*data.validation : nullptr),
                       samples(data.part(evaluated_part(config_)))});
  return engine;
}

// The objects of a run, in the order in which run() makes them.
struct TrainingRun::Parts {
  Engine& engine;
  const RunData& data;
  const PlanSummary& plan;
  RunDir& run;
  Console& console;
  CallbackList& callbacks;
  Expectations& expectations;
  RunWriter& record;
  Checkpointer& checkpointer;
};

namespace {

// Nothing stays of a run that a last check refuses: it would be taken for the newest one.
struct UnstartedFolder {
  RunDir& run;
  const bool& is_started;
  ~UnstartedFolder() {
    if (!is_started) {
      run.discard();
    }
  }
};

}  // namespace

int TrainingRun::run(ResumeTarget target, bool& started, const std::optional<ReplayStop>& stop) {
  begin(target);
  RunData data = read_data(target);
  const std::unique_ptr<Engine> engine = compile(data);
  warn_of_data(engine->setup(), data, data_warnings_);
  if (data.train) {
    warn_of_batch(config_.fit, *data.train, data_warnings_);
  }
  initial_ = initial_state(*engine, data, target,
                           {.request = request_,
                            .config = config_,
                            .coordinator = coordinator_,
                            .cursor = cursor_,
                            .portable = portable_});
  if (target.reader) {  // all have read it
    target.reader->close_files();
    target.copy.reset();
  }
  // A profile shows the estimate beside what it measures.
  const std::optional<Hardware> hardware =
      engine->profile() != nullptr ? own_hardware(engine->setup()) : std::nullopt;
  const PlanSummary plan =
      make_plan(engine->setup(), data.train->num_samples, true, hardware ? &*hardware : nullptr);
  ConsoleOptions console_options = request_.console;
  console_options.verbosity = request_.verbosity.value_or(config_.run.verbose.value);
  Console console(std::move(console_options));
  RunDir run = make_run_dir(target.run, weight_bytes(engine->model()), console);
  const UnstartedFolder unstarted{run, started};
  RunWriter record({.writes = coordinator_.is_first(),
                    .prints_events = request_.prints_events,
                    .quiet = request_.console.quiet,
                    .out = request_.console.out},
                   config_, run, console);
  coordinator_.on_rank_zero("checking callbacks", [&] {
    Diagnostics diagnostics;
    check_outputs(config_, run.path(), diagnostics);
    diagnostics.throw_if_errors();
  });
  CallbackList callbacks(callback_context(*engine, data, run, record, target));
  add_callbacks(callbacks);
  // Takes the lock: until then the run may be another process's, and no file of it is changed.
  Checkpointer checkpointer(*engine, config_, checkpointer_options(target, run, callbacks, record));
  Expectations expectations(config_.expect);
  const Parts parts{*engine,   data,         plan,   run,         console,
                    callbacks, expectations, record, checkpointer};
  begin_or_resume(parts, target);
  started = true;
  coordinator_.on_rank_zero("writing the run's files", [&] {
    run.link_latest();
    write_run_files(run, plan, *engine);
    const RunInfo info = describe(*engine, plan, data, run, target);
    show_start(info, plan, *engine);
    record.start(info, request_.command_line);
    for (const Diagnostic& warning : data_warnings_.list()) {
      record.record_warning(fmt::format("[{}] {}{}{}", warning.code, warning.message,
                                        warning.notes.empty() ? "" : "; ",
                                        fmt::join(warning.notes, "; ")));
    }
  });
  try {
    train(parts, target.reader != nullptr, stop);
  } catch (...) {
    console.interrupt();
    const auto [exit_code, message] = end_of_exception();
    record.end(exit_code, message);
    throw;
  }
  coordinator_.on_rank_zero("closing the run's files", [&] {
    console.finish();
    record.end(0, "");
    record.close();
    if (const ConfigObject* backup = find_callback<BackupOptions>(config_)) {
      end_backup(*backup, run.path());
    }
  });
  return 0;
}

// Sets the run's folder and hooks to their state in the target's checkpoint, or in a new run.
void TrainingRun::begin_or_resume(const Parts& parts, const ResumeTarget& target) const {
  coordinator_.on_rank_zero("looking at the run's checkpoints",
                            [&] { check_unchanged(target, parts.run.path()); });
  if (const ConfigObject* backup = find_callback<BackupOptions>(config_)) {
    coordinator_.on_rank_zero("BackupAndRestore", [&] { begin_backup(*backup, parts.run.path()); });
  }
  if (target.run.resume) {
    coordinator_.on_rank_zero("cutting back metrics.jsonl",
                              [&] { parts.run.rewind(initial_.position); });
  }
  for (const auto& callback : parts.callbacks.all()) {
    parts.checkpointer.add_state(*callback);
  }
  if (parts.expectations.is_any()) {
    parts.checkpointer.add_state(parts.expectations);
  }
  if (target.reader) {
    parts.checkpointer.resume(*target.reader, target.own);
  }
}

// Runs fit, saves the weights and evaluates. All checks come before.
void TrainingRun::train(const Parts& parts, bool is_resumed,
                        const std::optional<ReplayStop>& stop) {
  Trainer trainer(parts.engine, config_, request_.console.now);
  trainer.set_coordinator(coordinator_);
  for (const auto& callback : parts.callbacks.all()) {
    trainer.add_hook(*callback);
  }
  const auto warn = [&parts](const std::string& text) {
    for (Hook* hook : parts.record.hooks()) {
      hook->on_warning(text);
    }
  };
  LossWatch watch(warn);
  for (Hook* hook : parts.record.hooks()) {
    trainer.add_hook(*hook);
  }
  std::optional<SkipWatch> skips;  // warns of a step that the record knows already
  if (const Optimizer& optimizer = parts.engine.setup().optimizer(); optimizer.scales_loss()) {
    trainer.add_hook(
        skips.emplace(parts.engine, optimizer.scalars(DType::kFloat32).at(2).path, warn));
  }
  trainer.add_hook(watch);
  trainer.add_hook(parts.expectations);
  std::optional<ProfileHook> profile;
  if (parts.engine.profile() != nullptr) {
    trainer.add_hook(
        profile.emplace(parts.engine, parts.plan, parts.run, coordinator_.is_first(),
                        [&parts](const std::string& text) { parts.console.print(text); }));
  }
  std::optional<ReplayStopper> stopper;
  if (stop) {
    trainer.add_hook(stopper.emplace(parts.checkpointer, *stop));
  }
  trainer.add_saver(parts.checkpointer);
  if (is_resumed) {
    trainer.start_at(initial_.position);
  }
  const RunData& data = parts.data;
  parts.callbacks.context().validate = [&](const TrainPosition& at, int64_t steps) {
    trainer.validate_within_epoch(*data.validation, at, steps);
  };
  trainer.fit(*data.train, data.validation ? &*data.validation : nullptr);
  save_weights(parts.engine, parts.run.file(run_files::kWeights), coordinator_);
  if (const Dataset* evaluated = data.part(evaluated_part(config_))) {
    trainer.evaluate(*evaluated, evaluated_batch_size(config_), config_.evaluate.steps);
  }
  coordinator_.on_rank_zero("looking at what is expected",
                            [&] { parts.expectations.failures(request_.load).throw_if_errors(); });
}

RunData TrainingRun::read_data(const ResumeTarget& target) {
  RunData data;
  std::string hash;
  if (const auto& group = coordinator_.processes().group;
      group != nullptr && config_.data.memory == 0) {
    config_.data.memory.value = available_memory() / 4 / group->local_size();
  }
  const auto announced = coordinator_.announce("opening the data");
  coordinator_.on_all_ranks("opening the data", [&] {
    data = load_run_data(
        config_, true, evaluated_part(config_),
        learned_before(target, request_.restore.partial, config_.data.train, data_warnings_));
    learned_ = data.train->learned ? learned_text(*data.train->learned) : "";
    check_batches(config_, *data.train);
    Diagnostics problems;
    check_state_batches(config_, data, true, evaluated_part(config_), problems);
    problems.throw_if_errors();
    data_warnings_.append(problems);
    cursor_ = data_cursor(*data.train, config_);
    hash = cursor_.data;
    for (const std::optional<Dataset>* part : {&data.validation, &data.test}) {
      hash += coordinator_.is_alone() || !*part ? "-" : data_cursor(**part, config_).data;
    }
  });
  check_same_data(coordinator_, hash, data.train->loc);
  return data;
}

RunDir TrainingRun::make_run_dir(const RunDirOptions& options, int64_t weights, Console& console) {
  std::optional<RunDir> run_dir;
  const std::string path = coordinator_.broadcast("making the run's folder", [&] {
    run_dir.emplace(options, [&](const std::string& message) { console.on_warning(message); });
    try {
      run_dir->check_room(weights);
    } catch (...) {
      run_dir->discard();
      throw;
    }
    return run_dir->path();
  });
  try {
    if (gathers(config_)) {
      sees_folder_ = who_sees(coordinator_, path, kFolderTimeout);
    } else {
      check_shared_folder(coordinator_, path);
    }
  } catch (...) {
    if (run_dir) {
      run_dir->discard();
    }
    throw;
  }
  return run_dir ? std::move(*run_dir) : RunDir(path);
}

RunInfo TrainingRun::describe(Engine& engine, const PlanSummary& plan, const RunData& data,
                              const RunDir& run, const ResumeTarget& target) const {
  RunInfo info =
      describe_run(request_, engine.setup(), plan, data, run.path(),
                   engine.store().device() == nullptr ? "" : engine.store().device()->info().name);
  info.saves = saves_text(config_);
  if (const auto blind = std::count(sees_folder_.begin(), sees_folder_.end(), false); blind > 0) {
    info.saves +=
        fmt::format("; {} of {} processes send theirs to rank 0", blind, sees_folder_.size());
  }
  info.began_from = initial_.began_from;
  const MonitoredLog monitored = monitored_log(config_, [&](const std::string& log) {
    return larger_is_better(engine.setup().graphs(), log);
  });
  info.monitor = monitored.name.empty() ? "loss" : monitored.name;
  info.larger_is_better = monitored.larger_is_better;
  if (target.reader) {
    describe_resume(*target.reader, initial_.position, initial_.changes, engine.mesh(), info);
  }
  return info;
}

CallbackContext TrainingRun::callback_context(Engine& engine, const RunData& data,
                                              const RunDir& run, RunWriter& record,
                                              const ResumeTarget& target) const {
  return {.runner = engine,
          .config = config_,
          .run_dir = run.path(),
          .now = request_.console.now,
          .print = [&record](const std::string& text) { record.console().print(text); },
          .warn = [&record](const std::string& text) { record.warn(text); },
          .larger_is_better =
              [&engine](const std::string& log) {
                return larger_is_better(engine.setup().graphs(), log).value_or(false);
              },
          .save_model =
              [this, &engine](const std::string& path) { save_model(engine, path, coordinator_); },
          .writes = coordinator_.is_first(),
          .shared_now = [this] { return coordinator_.now(); },
          .same_run = target.own,
          .begins_again = target.run.resume && !target.reader,
          .engine = &engine,
          .learned = data.train->learned,
          .announce = [this](const char* what, double seconds) -> std::shared_ptr<void> {
            return std::make_shared<std::optional<HeartbeatMonitor::Announcement>>(
                coordinator_.announce(what, seconds));
          }};
}

CheckpointerOptions TrainingRun::checkpointer_options(const ResumeTarget& target, RunDir& run,
                                                      CallbackList& callbacks, RunWriter& record) {
  CheckpointerOptions options;
  options.run_dir = run.path();
  options.notes.written_by = "meshtrain " + request_.version;
  options.notes.processes = coordinator_.size();
  options.notes.state.cursor = cursor_;
  options.notes.texts = {{run_files::kConfig, written_}, {run_files::kResolved, portable_}};
  if (!learned_.empty()) {
    options.notes.texts.emplace_back(run_files::kLearned, learned_);
  }
  if (target.reader) {
    const std::string& run_id = target.reader->manifest().run_id;
    (target.own ? options.notes.run_id : options.notes.parent_run) = run_id;
  }
  options.now = request_.console.now;
  options.started_at = started_at_;
  options.coordinator = &coordinator_;
  options.sees_folder = sees_folder_;
  options.warn = [&record](const std::string& text) { record.warn(text); };
  options.report = [this, &record](const std::string& text) {
    record.console().interrupt();
    request_.console.err(text + "\n");
  };
  options.inform = [this, &record, report = options.report](const std::string& text) {
    record.saved(text);
    if (request_.tells_more) {
      report(text);
    }
  };
  options.take_state_saves = [&callbacks] { return callbacks.take_state_saves(); };
  // Shared, since the options are copied for each save.
  options.before_commit = [&run, &callbacks, named = std::make_shared<bool>(false)] {
    callbacks.sync();
    *named ? run.metrics().sync() : run.sync();  // the folder's name needs that only once
    *named = true;
  };
  return options;
}

void TrainingRun::write_run_files(const RunDir& run, const PlanSummary& plan,
                                  Engine& engine) const {
  run.write(run_files::kConfig, written_);
  run.write(run_files::kResolved, portable_config(request_.load, config_, true));
  if (!learned_.empty()) {
    run.write(run_files::kLearned, learned_);
  }
  run.write(run_files::kPlanText, plan_text(plan));
  run.write(run_files::kPlanJson, plan_json(plan));
  run.write(run_files::kLayout, layout_json(Snapshot(engine.store()).tensors()));
}

void TrainingRun::show_start(const RunInfo& info, const PlanSummary& plan,
                             const Engine& engine) const {
  if (!request_.console.quiet) {
    request_.console.err(first_screen(info));
    if (const std::string changes = changes_text(initial_.changes); !changes.empty()) {
      request_.console.err("changed since\n" + changes);
    }
    if (const int64_t done = std::max(initial_.position.epoch, config_.fit.initial_epoch.value);
        done >= config_.fit.epochs) {
      request_.console.err(
          initial_.position.epoch < done
              ? fmt::format("nothing to train: fit.initial_epoch is {}, fit.epochs is {}\n", done,
                            config_.fit.epochs.value)
              : fmt::format("nothing left to train: {} epoch{} done, fit.epochs is {}\n", done,
                            done == 1 ? " is" : "s are", config_.fit.epochs.value));
    }
    request_.console.err(request_.tells_more ? "\n" + plan_text(plan) : "");
    for (const std::string& warning : initial_.warnings) {
      request_.console.err(fmt::format("warning: {}\n", warning));
    }
  }
  Diagnostics warnings = data_warnings_;
  warnings.append(engine.warnings());
  request_.warn(warnings);
}

}  // namespace meshtrain
