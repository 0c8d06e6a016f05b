// What the verbs share: `meshtrain VERB CONFIG... [KEY=VALUE...] [--flags]`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "config/load.h"
#include "streams.h"
#include "train/console.h"

namespace meshtrain {

class Engine;

// The command line as parsed; one for the whole process.
struct Arguments {
  std::vector<std::string> command_line;  // all of it, as given
  std::vector<std::string> words;         // config files and overrides, in order
  std::vector<std::string> sets;          // --set
  std::string profile, mesh, devices, name, batch_size, epochs, seed, limit_steps;
  std::string resume, max_time, target;
  std::vector<std::string> allow;  // --allow KEY
  bool reset_cursor = false, reset_optimizer = false, partial = false;
  std::string run_dir, weights, input, output, dump_ir;
  std::string color = "auto", progress = "auto", log_format = "keras", format = "text";
  bool dry_run = false, quiet = false, origin = false;
  int verbosity = 0;
  std::string sharding;  // summary --sharding [NAME]
  bool draw_sharding = false;
  int64_t steps = 4;  // of verify
  double tolerance = 1e-9;
  std::string scratch;
  bool checksums = false;
  std::string template_name;
};

// What the chosen verb does; set while parsing, run after it. Returns the exit code; throws what
// main() shows.
using Action = std::function<int()>;

struct Command {
  CLI::App& app;
  Arguments& arguments;
  Action& action;
  // Errors from here on cannot say that nothing was started.
  bool& started;
};

// --- one function per file
// ------------------------------------------------------------------------
void add_config(Command command);
void add_data(Command command);
void add_devices(Command command);
void add_evaluate(Command command);
void add_export(Command command);
void add_import(Command command);
void add_init(Command command);
void add_inspect(Command command);
void add_plan(Command command);
void add_predict(Command command);
void add_report(Command command);
void add_resume(Command command);
void add_schema(Command command);
void add_summary(Command command);
void add_train(Command command);
void add_validate(Command command);
void add_verify(Command command);
void add_version(Command command);

int show_plan(const Arguments& arguments);  // also `train --dry-run`

// --- flags
// ----------------------------------------------------------------------------------------
// CONFIG... [KEY=VALUE...] and the flags that stand for config keys.
void add_config_arguments(CLI::App& verb, Arguments& arguments);
// The latter alone.
void add_key_flags(CLI::App& verb, Arguments& arguments);
// --progress, --log-format, -q, -v: of verbs that run steps.
void add_output_flags(CLI::App& verb, Arguments& arguments);
void add_color_flag(CLI::App& verb, Arguments& arguments);
// "text" or "json".
void add_format_flag(CLI::App& verb, Arguments& arguments);

void add_weights_flag(CLI::App& verb, Arguments& arguments);

// --- meaning
// --------------------------------------------------------------------------------------
LoadOptions load_options(const Arguments& arguments, bool require_data);
// The same without a file among the words, for configs that come from elsewhere.
LoadOptions override_options(const Arguments& arguments);
// run.verbose as --progress changes it.
int64_t progress_verbose(const Arguments& arguments, const Config& config);
ConsoleOptions console_options(const Arguments& arguments, const Config& config);
// --color with NO_COLOR, CLICOLOR_FORCE and TERM=dumb.
bool use_color(const std::string& flag, const TextStream& stream);
// --weights, else fit.initial_weights, else E140.
void load_given_weights(Engine& engine, const Arguments& arguments, const Config& config);
void show_warnings(const Diagnostics& warnings, const Arguments& arguments);
double seconds_now();  // steady clock
extern const char* const kVersion;

}  // namespace meshtrain
