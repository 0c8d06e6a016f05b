// meshtrain validate: every problem of a config at once; for people, editors and CI.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/text.h"
#include "config/expression.h"
#include "config_words.h"
#include "engine/adapt.h"
#include "engine/check_ids.h"
#include "engine/data_warnings.h"
#include "engine/host_memory.h"
#include "engine/run_data.h"
#include "engine/setup.h"
#include "engine/weights.h"
#include "output.h"
#include "plan/hardware_file.h"
#include "record/events.h"
#include "sarif.h"
#include "subcommand.h"
#include "train/callbacks/make_callbacks.h"
#include "train/expectations.h"
#include "train/load_weights.h"

namespace meshtrain {
namespace {

struct ValidateOptions {
  ConfigWords config;
  std::string format = "text";
  bool quiet = false;
  bool scan = false;
};

std::string json_of(const Diagnostic& d) {
  std::string notes;
  for (const std::string& note : d.notes) {
    notes += (notes.empty() ? "" : ",") + json_string(note);
  }
  return fmt::format(
      R"({{"severity":"{}","code":"{}","message":{},"file":{},"line":{},"column":{},"length":{},)"
      R"("label":{},"notes":[{}]}})",
      d.severity == Severity::kError ? "error" : "warning", d.code, json_string(d.message),
      d.loc ? json_string(d.loc.file->name) : "null", d.loc.line, d.loc.column, d.loc.length,
      json_string(d.label), notes);
}

std::string json_of(const Diagnostics& diagnostics) {
  std::string list;
  for (const Diagnostic& d : diagnostics.list()) {
    list += (list.empty() ? "" : ",") + json_of(d);
  }
  std::string names;
  for (const std::string& name : environment_read()) {
    names += (names.empty() ? "" : ",") + json_string(name);
  }
  return fmt::format(
      R"({{"valid":{},"errors":{},"warnings":{},"diagnostics":[{}],"environment":[{}]}})"
      "\n",
      !diagnostics.has_errors(), diagnostics.num_errors(), diagnostics.num_warnings(), list, names);
}

// What is wrong with mesh and layouts (E2xx) of a config that has other errors, where its model can
// be built.
void add_layout_problems(LoadOptions options, Diagnostics& found) {
  options.sections = {"version", "name",         "vars",         "model",
                      "blocks",  "distribution", "dtype_policy", "dtype_policy_map"};
  options.require_data = false;
  Diagnostics others;
  collect(others, [&] { const Setup setup(load_config(options), nullptr); });
  for (const Diagnostic& problem : others.list()) {
    const bool is_known =
        std::any_of(found.list().begin(), found.list().end(), [&](const Diagnostic& known) {
          return known.code == problem.code && known.message == problem.message;
        });
    const bool is_of_batch = problem.code == "E211";  // of the default one, since `fit` is not read
    if (problem.code.starts_with("E2") && !is_of_batch && !is_known) {
      found.error(problem.code, problem.loc, problem.message) = problem;
    }
  }
}

// Compares the names and shapes of fit.initial_weights with those of the model.
void check_initial_weights(const Config& config, const Model& model, Diagnostics& found) {
  const Located<std::string>& weights = config.fit.initial_weights;
  if (weights.value.empty()) {
    check_adaptation(model, found);
    return;
  }
  Diagnostics problems;
  collect(problems, [&] {
    std::vector<std::string> skipped;  // damaged checkpoints
    const std::string path = weights_in(weights, &skipped);
    for (const std::string& text : skipped) {
      found.warning("W402", weights.loc, text);
    }
    std::vector<std::string> unfit;
    fitting_weights(read_weights_in(path, &model), wanted_weights(model), path, weights.loc,
                    config.fit.partial_weights ? &unfit : nullptr);
  });
  for (const Diagnostic& problem : problems.list()) {
    Diagnostic& added = found.error(problem.code, problem.loc, problem.message);
    added = problem;
    added.loc = problem.loc ? problem.loc : weights.loc;
  }
}

// Everything that is wrong with a config. Its data are what can be known of them in a moment, or
// else what model and loss imply.
Diagnostics problems_of(const ConfigWords& words, bool scan) {
  Diagnostics found;
  const LoadOptions options = words.load(true);
  RunData data;
  std::optional<const Config> loaded;
  std::unique_ptr<const Setup> fitting;  // to the data
  try {
    const Config& config = loaded.emplace(load_config(options));
    data = run_data_spec(config, scan, found);
    const bool is_known = data.train && !found.has_errors();
    const DataSpec spec = is_known ? data_spec(*data.train) : DataSpec();
    auto made = std::make_unique<const Setup>(config, is_known ? &spec : nullptr);
    const Setup& setup = *made;
    found.append(setup.warnings());
    warn_of_host_memory(setup, found);
    check_callbacks(setup, config.validates(), found);
    check_evaluated_part(config, found);
    if (!config.plan.hardware->empty()) {
      collect(found, [&] { load_hardware(config.plan.hardware); });
    }
    check_expectations(setup, config.validates(), evaluated_part(config) != DataPart::kNone, found);
    check_initial_weights(config, setup.model(), found);
    if (is_known) {
      collect(found, [&] { check_run_ids(setup, data); });
    }
    fitting = is_known ? std::move(made) : nullptr;
  } catch (const ConfigError& error) {
    found.append(error.diagnostics());
    add_layout_problems(options, found);
  }
  if (scan) {
    read_all_data(data, found);
  }
  if (scan && fitting && !found.has_errors()) {
    collect(found, [&] { warn_of_data(*fitting, data, found); });
  }
  return found;
}

int run_validate(const ValidateOptions& options, Invocation&) {
  const Diagnostics found = problems_of(options.config, options.scan);
  if (options.format != "text") {
    out_stream().write(options.format == "json" ? json_of(found) : sarif_of(found));
    return static_cast<int>(found.exit_code());
  }
  show_warnings(found);
  if (!options.quiet) {
    const int errors = found.num_errors(), warnings = found.num_warnings();
    const std::vector<std::string> files = options.config.overrides().files;
    out_stream().write(fmt::format("{}: {} error{}, {} warning{}\n",
                                   files.empty() ? options.config.words.front() : files.front(),
                                   errors, errors == 1 ? "" : "s", warnings,
                                   warnings == 1 ? "" : "s"));
    if (const std::vector<std::string> names = environment_read(); !names.empty()) {
      out_stream().write(fmt::format("reads from the environment: {}\n", join(names, ", ")));
    }
  }
  return static_cast<int>(found.exit_code());
}

}  // namespace

void add_validate(Subcommands& to) {
  auto [app, options, subcommand] = to.add<ValidateOptions>(
      "validate", "Check a config without its data, in milliseconds; --data also checks the data",
      run_validate);
  options.config.add_to(app);
  app.add_flag("--data", options.scan, "Reads all data, as `train` does");
  add_format_flag(app, options.format, {"text", "json", "sarif"});
  add_color_flag(app);
  add_quiet_flag(app, options.quiet, "Only problems");
}

}  // namespace meshtrain
