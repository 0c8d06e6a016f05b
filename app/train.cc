// meshtrain train: build, fit, save, evaluate.
#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "cli.h"
#include "train/adapt.h"
#include "train/engine.h"
#include "train/events.h"
#include "train/make_plan.h"
#include "train/run_data.h"
#include "train/run_dir.h"
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
  for (const std::string& file : load_options(arguments, true).files) {
    info.config += (info.config.empty() ? "" : " ") + file;
  }
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

int train(const Arguments& arguments, bool& started) {
  const LoadOptions options = load_options(arguments, true);
  const Config config = load_config(options);
  const RunDirOptions run_options = run_dir_options(arguments, config);
  Diagnostics diagnostics;
  check_run_dir(run_options, diagnostics);
  diagnostics.throw_if_errors();
  RunData data = load_run_data(config, true, evaluated_part(config));
  check_batches(config, *data.train);
  Engine engine(config, data_spec(*data.train), {.num_workers = 0, .dump_ir = arguments.dump_ir});
  check_run_labels(engine.setup(), data);
  if (!config.fit.initial_weights.value.empty()) {
    load_weights(engine, config.fit.initial_weights, config.fit.initial_weights.loc,
                 &engine.model());
  } else {
    adapt_to_data(engine.model(), *data.train, engine);
  }
  const PlanReport plan = make_plan(engine.setup(), data.train->num_samples);
  Console console(console_options(arguments, config));
  EventLog events(config.run.log_steps, config.dtype_policy.value == "float64");
  RunDir run(run_options, [&](const std::string& message) { console.on_warning(message); });
  run.write("config.yaml", config.source_text);
  run.write("config.resolved.yaml", show_config(options, true));
  run.write("plan.txt", plan_text(plan));
  run.write("plan.json", plan_json(plan));
  events.add_sink([&run](std::string_view line) { run.metrics().append(line); });
  JsonOutput json(arguments.quiet);
  if (arguments.log_format == "json") {
    events.add_sink([&json](std::string_view line) { json.line(line); });
  }
  const RunInfo info = describe_run(arguments, engine.setup(), plan, data, run.path());
  if (!arguments.quiet) {
    err_stream().write(first_screen(info));
    err_stream().write(arguments.verbosity > 0 ? "\n" + plan_text(plan) : "");
  }
  show_warnings(engine.warnings(), arguments);
  started = true;
  events.start(info);
  Trainer trainer(engine, config, seconds_now);
  trainer.add_observer(events);
  trainer.add_observer(console);
  catch_stop_signals();
  try {
    run_steps(config, engine, data, run, trainer);
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

}  // namespace

void add_train(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb = *command.app.add_subcommand("train", "Build the model, fit, evaluate");
  add_config_arguments(verb, a);
  verb.add_option("-o,--run-dir", a.run_dir,
                  "Where results go; default runs/NAME/ID, never overwritten")
      ->type_name("DIR");
  verb.add_flag("-n,--dry-run", a.dry_run, "Show the plan and stop");
  verb.add_option("--dump-ir", a.dump_ir, "Write the graph after each pass")->type_name("DIR");
  add_output_flags(verb, a);
  verb.callback([command] {
    command.action = [command] {
      const Arguments& arguments = command.arguments;
      return arguments.dry_run ? show_plan(arguments) : train(arguments, command.started);
    };
  });
}

}  // namespace meshtrain
