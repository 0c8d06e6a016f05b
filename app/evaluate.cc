// meshtrain evaluate: loss and metrics of given weights.
#include <fmt/format.h>

#include "checkpoint/restore.h"
#include "cli.h"
#include "config/source_like.h"
#include "engine/engine.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "given_run.h"
#include "record/events.h"
#include "restarts.h"
#include "train/learned_file.h"
#include "train/trainer.h"

namespace meshtrain {
namespace {

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
  const std::optional<ConfigObject>& source = own ? own : data.train;  // validation_split
  if (source && (&source == &data.train || training_source(*source) != nullptr)) {
    warn_of_nothing_learned(*source, weights, warnings);
  }
}

}  // namespace

int run_evaluate(const Arguments& arguments, bool& started) {
  const GivenRun given = given_run(arguments, true);
  const Config config = load_config(given.options);
  if (const std::optional<int> code = run_own_processes(arguments, config)) {
    return *code;
  }
  const DataPart part = part_to_evaluate(config);
  Coordinator coordinator(arguments.processes, seconds_now);
  RunData data;
  LearnedPtr known;
  std::string hash;
  coordinator.on_all_ranks("opening the data", [&] {
    const auto announced = coordinator.announce("opening the data");
    known = learned_for(given, config);
    data = load_run_data(config, false, part, known);
    hash = coordinator.is_alone() ? "" : data_cursor(*data.part(part), config).data;
  });
  const Dataset& dataset = *data.part(part);
  check_same_data(coordinator, hash, dataset.loc);
  Engine engine(config, data_spec(dataset), engine_options(arguments));
  coordinator.on_all_ranks("checking labels and ids", [&] { check_run_ids(engine.setup(), data); });
  engine.prepare_run({.evaluated = dataset.num_samples});
  Diagnostics warnings = engine.warnings();
  if (!known) {
    warn_of_ids(config, part, weights_of(given, config), warnings);
  }
  show_warnings(warnings, arguments);
  load_given_weights(engine, given, config, arguments, coordinator);
  Console console(console_options(arguments, config));
  EventLog events(false, config.dtype_policy.value == "float64");
  if (arguments.log_format == "json") {
    events.add_sink([](std::string_view line) { out_stream().write(fmt::format("{}\n", line)); });
  }
  Trainer trainer(engine, config, seconds_now);
  trainer.set_coordinator(coordinator);
  trainer.add_hook(events);
  trainer.add_hook(console);
  started = true;
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

}  // namespace meshtrain
