// meshtrain evaluate: loss and metrics of given weights.
#include <fmt/format.h>

#include "checkpoint/restore.h"
#include "config/source_like.h"
#include "engine/engine.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "record/events.h"
#include "run_flags.h"
#include "train/learned_file.h"
#include "train/trainer.h"

namespace meshtrain {
namespace {

struct EvaluateOptions {
  ConfigWords config;
  std::string weights;
  EngineFlags engine;
  OutputFlags output;
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

int run_evaluate(const EvaluateOptions& options, Invocation& invocation) {
  const ModelSource source = options.config.source(options.weights, true);
  const Config config = load_config(source.load);
  if (const std::optional<int> code =
          run_own_processes({invocation.given_words}, config, invocation.processes)) {
    return *code;
  }
  const DataPart part = part_to_evaluate(config);
  Coordinator coordinator(invocation.processes, seconds_now);
  RunData data;
  LearnedPtr known;
  std::string hash;
  coordinator.on_all_ranks("opening the data", [&] {
    const auto announced = coordinator.announce("opening the data");
    known = learned_for(source, config);
    data = load_run_data(config, false, part, known);
    hash = coordinator.is_alone() ? "" : data_cursor(*data.part(part), config).data;
  });
  const Dataset& dataset = *data.part(part);
  check_same_data(coordinator, hash, dataset.loc);
  Engine engine(config, data_spec(dataset), options.engine.options(invocation));
  coordinator.on_all_ranks("checking labels and ids", [&] { check_run_ids(engine.setup(), data); });
  engine.prepare_run({.evaluated = dataset.num_samples});
  Diagnostics warnings = engine.warnings();
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
  Trainer trainer(engine, config, seconds_now);
  trainer.set_coordinator(coordinator);
  trainer.add_hook(events);
  trainer.add_hook(console);
  invocation.started = true;
  catch_stop_signals();
  try {
    trainer.evaluate(dataset, evaluated_batch_size(config), config.evaluate.steps);
  } catch (...) {
    console.interrupt();
    throw;
  }
  console.finish();
  return 0;
}

}  // namespace

void add_evaluate(Subcommands& to) {
  auto [app, options, subcommand] = to.add<EvaluateOptions>(
      "evaluate", "Loss and metrics of a run, or of a config with weights", run_evaluate);
  options.config.add_to(app, Steps::kEvaluate);
  add_weights_flag(app, options.weights);
  options.engine.add_to(app);
  options.output.add_to(app);
  subcommand.shared = [&app = app, &options = options] {
    return SharedCommand{.flags = flags_text(app, {"--weights"}), .load = [&options] {
                           return options.config.source(options.weights, true).load;
                         }};
  };
}

}  // namespace meshtrain
