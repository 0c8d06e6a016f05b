// meshtrain evaluate: loss and metrics of given weights.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/file.h"
#include "base/host.h"
#include "checkpoint/data_cursor.h"
#include "config/run_files.h"
#include "config/source_like.h"
#include "engine/check_ids.h"
#include "engine/data_warnings.h"
#include "engine/engine.h"
#include "engine/epoch_plan.h"
#include "engine/language_metrics.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "engine/state_batches.h"
#include "record/evaluation_details.h"
#include "record/events.h"
#include "record/report/run_report.h"
#include "run_flags.h"
#include "train/learned_file.h"
#include "train/trainer.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

struct EvaluateOptions {
  ConfigWords config;
  std::string weights;
  EngineFlags engine;
  OutputFlags output;
  bool details = false;
  std::string details_file;
};

// The part to evaluate: here `auto` falls back to the training data.
DataPart part_to_evaluate(const Config& config) {
  const DataPart part = evaluated_part(config);
  return part == DataPart::kNone ? DataPart::kTrain : part;
}

// Adds W328 when no values are stored: ids then come from the training data as they are now.
void warn_of_ids(const Config& config, DataPart part, const std::string& weights,
                 Diagnostics& warnings) {
  const DataConfig& data = config.data;
  const std::optional<ConfigObject>& own = part == DataPart::kTest         ? data.test
                                           : part == DataPart::kValidation ? data.validation
                                                                           : data.train;
  const std::optional<ConfigObject>& source = own ? own : data.train;  // split from it
  if (source && (&source == &data.train || training_source(*source) != nullptr)) {
    warn_of_nothing_learned(*source, weights, warnings);
  }
}

// The samples that the evaluation took.
Dataset evaluated_samples(const Dataset& dataset, const Config& config) {
  const int64_t batch = evaluated_batch_size(config);
  int64_t steps = count_batches(dataset.num_samples, batch, drops_last_test(config));
  steps = config.evaluate.steps > 0 ? std::min<int64_t>(steps, config.evaluate.steps) : steps;
  const int64_t count = std::min(dataset.num_samples, steps * batch);
  if (count == dataset.num_samples) {
    return dataset;
  }
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return select_samples(dataset, rows);
}

std::vector<OutputDetails> details_of(Engine& engine, Coordinator& coordinator,
                                      const Dataset& dataset, const Config& config,
                                      const LearnedPtr& known) {
  Trainer trainer(engine, config, steady_seconds);  // without hooks: nothing is shown meanwhile
  trainer.set_coordinator(coordinator);
  const Dataset samples = evaluated_samples(dataset, config);
  const std::vector<HostTensor> outputs = trainer.predict(samples, evaluated_batch_size(config));
  const std::vector<ClassOutput> classes =
      class_outputs(engine.setup(), known ? known : dataset.learned);
  const std::vector<std::string> none;
  const std::vector<std::string>& files = samples.files ? *samples.files : none;
  std::vector<OutputDetails> details;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = engine.model().output_names()[i];
    if (i >= samples.targets.size()) {
      details.push_back({.name = name,
                         .samples = samples.num_samples,
                         .none_because = "the data have no targets for it"});
      continue;
    }
    const HostTensor targets = samples.targets[i].rows->read_range(0, samples.num_samples);
    details.push_back(output_details(name, outputs[i], targets, classes[i], files));
  }
  return details;
}

// Where the details of a run are kept; "" for a config with weights, or a checkpoint.
std::string details_path(const EvaluateOptions& options, const ModelSource& source) {
  if (!options.details_file.empty()) {
    return options.details_file;
  }
  const bool is_run = !source.run.empty() && fs::exists(source.run + "/" + run_files::kMetrics);
  return is_run ? source.run + "/" + run_files::kEvaluation : "";
}

void show_details(const std::vector<OutputDetails>& details, const EvaluateOptions& options,
                  const ModelSource& source) {
  nlohmann::ordered_json json = details_json(details);
  const std::string path = details_path(options, source);
  if (!path.empty()) {
    write_file_atomic(path,
                      json_text(json, 1, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  if (options.details_file.empty() && !path.empty()) {
    write_report(source.run);
  }
  if (options.output.is_json()) {
    nlohmann::ordered_json event = {{"event", "details"}};
    event.update(json);
    out_stream().write(json_text(event, -1, nlohmann::ordered_json::error_handler_t::replace) +
                       "\n");
  } else {
    out_stream().write(details_text(details));
  }
  if (!path.empty()) {
    show_unless(options.output.quiet)(fmt::format("details     {}\n", path));
  }
}

std::vector<std::string> nonfinite(const Logs& logs) {
  std::vector<std::string> results;
  for (const auto& [name, value] : logs) {
    if (!std::isfinite(value)) {
      results.push_back(fmt::format("`{}` is {}", name, std::isnan(value) ? "NaN" : "infinite"));
    }
  }
  return results;
}

int run_evaluate(const EvaluateOptions& options, Invocation& invocation) {
  const ModelSource source = options.config.source(options.weights, true);
  Config config = load_config(source.load);
  drop_training_batch(config);
  if (const std::optional<int> code =
          run_own_processes({invocation.given_words}, config, invocation.processes)) {
    return *code;
  }
  const DataPart part = part_to_evaluate(config);
  Coordinator coordinator(invocation.processes, steady_seconds);
  RunData data;
  LearnedPtr known;
  std::string hash;
  Diagnostics warnings;
  coordinator.on_all_ranks("opening the data", [&] {
    const auto announced = coordinator.announce("opening the data");
    known = learned_for(source, config);
    data = load_run_data(config, false, part, known);
    check_state_batches(config, data, false, part, warnings);
    warnings.throw_if_errors();
    hash = coordinator.is_alone() ? "" : data_cursor(*data.part(part), config).data;
  });
  const Dataset& dataset = *data.part(part);
  check_same_data(coordinator, hash, dataset.loc);
  add_language_metrics(dataset, config);
  Engine engine(config, data_spec(dataset), options.engine.options(invocation));
  coordinator.on_all_ranks("checking labels and ids", [&] { check_run_ids(engine.setup(), data); });
  engine.prepare_run({.evaluated = dataset.num_samples});
  warnings.append(engine.warnings());
  warn_of_skipped(dataset, fmt::format("the {} data", data_part_name(part)), warnings);
  if (!known) {
    warn_of_ids(config, part, weights_of(source, config), warnings);
  }
  show_warnings(warnings, options.output.quiet);
  show_unless(options.output.quiet)(changed_files_note(source));
  load_source_weights(engine, source, config, coordinator, show_unless(options.output.quiet));
  Console console(options.output.console(config.run.verbose));
  EventLog events(false, config.dtype_policy.value == "float64");
  if (options.output.is_json()) {
    events.add_sink([](std::string_view line) { out_stream().write(fmt::format("{}\n", line)); });
  }
  Trainer trainer(engine, config, steady_seconds);
  trainer.set_coordinator(coordinator);
  trainer.add_hook(events);
  trainer.add_hook(console);
  invocation.started = invocation.result_is_on_stdout = true;
  catch_stop_signals();
  Logs logs;
  try {
    logs = trainer.evaluate(dataset, evaluated_batch_size(config), config.evaluate.steps);
  } catch (...) {
    console.interrupt();
    throw;
  }
  console.finish();
  warn_of_nonfinite(nonfinite(logs), options.output.quiet);
  if (options.details) {
    const std::vector<OutputDetails> details =
        details_of(engine, coordinator, dataset, config, known);
    coordinator.on_rank_zero("writing the details", [&] {
      const auto announced = coordinator.announce("writing the details");
      show_details(details, options, source);
    });
  }
  return 0;
}

}  // namespace

void add_evaluate(Subcommands& to) {
  auto [app, options, subcommand] = to.add<EvaluateOptions>(
      "evaluate", "Loss and metrics of a run, or of a config with weights", run_evaluate);
  options.config.add_source_to(app, Steps::kEvaluate);
  add_weights_flag(app, options.weights);
  app.add_flag("--details", options.details,
               "Also confusion matrix, precision and recall, ROC, residuals, the worst samples; "
               "as evaluation.json and in the report of a run");
  app.add_option("--details-file", options.details_file, "Where the JSON of --details goes")
      ->type_name("FILE")
      ->needs("--details");
  options.engine.add_to(app);
  options.output.add_to(app);
  subcommand.shared = [&app = app, &options = options] {
    return SharedCommand{
        .flags = flags_text(app, {"--weights", "--details", "--details-file"}),
        .load = [&options] { return options.config.source(options.weights, true).load; }};
  };
}

}  // namespace meshtrain
