// meshtrain validate: every problem of a config at once; for people, editors and CI.
#include <fmt/format.h>

#include "base/text.h"
#include "config/expression.h"
#include "config_words.h"
#include "engine/adapt.h"
#include "engine/host_memory.h"
#include "engine/run_data.h"
#include "engine/setup.h"
#include "output.h"
#include "record/events.h"
#include "subcommand.h"
#include "train/callbacks/make_callbacks.h"

namespace meshtrain {
namespace {

struct ValidateOptions {
  ConfigWords config;
  std::string format = "text";
  bool quiet = false;
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

// Everything that is wrong with a config. Its data are what the sources say that need no file, or
// else what model and loss imply.
Diagnostics problems_of(const ConfigWords& words) {
  Diagnostics found;
  try {
    const Config config = load_config(words.load(true));
    const RunData data = run_data_spec(config, found);
    const bool is_known = data.train && !found.has_errors();
    const DataSpec spec = is_known ? data_spec(*data.train) : DataSpec();
    const Setup setup(config, is_known ? &spec : nullptr);
    found.append(setup.warnings());
    warn_of_host_memory(setup, found);
    check_callbacks(setup, config.data.validation || config.fit.validation_split.value > 0, found);
    if (config.fit.initial_weights.value.empty()) {
      check_adaptation(setup.model(), found);
    }
  } catch (const ConfigError& error) {
    found.append(error.diagnostics());
  }
  return found;
}

int run_validate(const ValidateOptions& options, Invocation&) {
  const Diagnostics found = problems_of(options.config);
  if (options.format == "json") {
    out_stream().write(json_of(found));
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
      "validate", "All problems of a config at once, in milliseconds", run_validate);
  options.config.add_to(app);
  add_format_flag(app, options.format);
  add_color_flag(app);
  add_quiet_flag(app, options.quiet, "Only problems");
}

}  // namespace meshtrain
