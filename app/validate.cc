// meshtrain validate: every problem of a config at once; for people, editors and CI.
#include <fmt/format.h>

#include "base/text.h"
#include "cli.h"
#include "config/expression.h"
#include "engine/adapt.h"
#include "engine/run_data.h"
#include "engine/setup.h"
#include "record/events.h"
#include "train/callbacks/make_callbacks.h"

namespace meshtrain {
namespace {

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
Diagnostics problems_of(const Arguments& arguments) {
  Diagnostics found;
  try {
    const Config config = load_config(load_options(arguments, true));
    const RunData data = outline_run_data(config, found);
    const bool is_known = data.train && !found.has_errors();
    const DataSpec spec = is_known ? data_spec(*data.train) : DataSpec();
    const Setup setup(config, is_known ? &spec : nullptr);
    found.append(setup.warnings());
    check_callbacks(setup, config.data.validation || config.fit.validation_split.value > 0, found);
    if (config.fit.initial_weights.value.empty()) {
      check_adaptation(setup.model(), found);
    }
  } catch (const ConfigError& error) {
    found.append(error.diagnostics());
  }
  return found;
}

}  // namespace

int run_validate(const Arguments& arguments) {
  const Diagnostics found = problems_of(arguments);
  if (arguments.format == "json") {
    out_stream().write(json_of(found));
    return static_cast<int>(found.exit_code());
  }
  err_stream().write(found.render(use_color(arguments.color, err_stream())));
  const int errors = found.num_errors();
  const int warnings = found.num_warnings();
  if (!arguments.quiet) {
    Arguments words;  // without the flags, one of which may be what is wrong
    words.words = arguments.words;
    const std::vector<std::string> files = override_options(words).files;
    out_stream().write(fmt::format("{}: {} error{}, {} warning{}\n",
                                   files.empty() ? arguments.words.front() : files.front(), errors,
                                   errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s"));
    if (const std::vector<std::string> names = environment_read(); !names.empty()) {
      out_stream().write(fmt::format("reads from the environment: {}\n", join(names, ", ")));
    }
  }
  return static_cast<int>(found.exit_code());
}

}  // namespace meshtrain
