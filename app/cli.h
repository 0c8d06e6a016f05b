// What the verbs share: `meshtrain VERB CONFIG... [KEY=VALUE...] [--flags]`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "config/load.h"
#include "record/console.h"
#include "streams.h"

namespace meshtrain {

class Coordinator;
class Engine;

struct FetchArguments {
  std::vector<std::string> sets;
  std::string folder, mirror;
  double timeout = 30;
  bool offline = false;
};

struct LaunchArguments {
  std::string hosts, host_file, agent, interface;
  int processes = 0;  // 0: as many as the hosts take
};

struct BenchArguments {
  std::string smallest = "1 KiB", largest = "64 MiB";
  double seconds = 0.05;
};

// The command line as parsed; one for the whole process. verbs.cc declares what sets what.
struct Arguments {
  std::vector<std::string> command_line;  // all of it, as given
  // Verb, flags and words for processes that this one starts to do its work: without what only
  // concerns starting them.
  std::vector<std::string> given_words;
  std::vector<std::string> words;  // config files and overrides, in order
  std::vector<std::string> sets;   // --set
  std::string profile, mesh, devices, name, batch_size, epochs, seed, limit_steps;
  std::string evaluate_steps;  // --limit-steps of evaluate
  std::string resume, max_time, target;
  std::vector<std::string> allow;  // --allow KEY
  bool reset_cursor = false, reset_optimizer = false, partial = false;
  std::string run_dir, weights, input, output, dump_ir;
  std::string color = "auto", progress = "auto", log_format = "keras", format = "text";
  bool dry_run = false, quiet = false, origin = false, no_cuda_graph = false;
  int verbosity = 0;
  std::string sharding;  // summary --sharding [NAME]
  bool draw_sharding = false;
  int64_t steps = 4;  // of verify
  double tolerance = 1e-9;
  std::string scratch;
  bool checksums = false;
  bool markdown = false;  // of explain
  std::string template_name;
  std::string hardware;  // of plan
  int64_t hosts = 0;     // 0: as the hardware has them
  BenchArguments bench;
  FetchArguments fetch;
  LaunchArguments launch;
  int64_t restarts = 0;
  Processes processes;  // that run the verb; made before it begins
  int num_workers = 0;  // threads that compute; 0: one per core
};

// What the flags say of an engine.
struct EngineOptions;
EngineOptions engine_options(const Arguments& arguments);

// --- one function per verb
// ------------------------------------------------------------------------
// Each returns the exit code and throws what main() shows. `started` becomes true when there is
// something on disk: errors from then on cannot say that nothing was started.
int run_bench_comm(const Arguments& arguments);
int run_config_show(const Arguments& arguments);
int run_data_fetch(const Arguments& arguments, bool& started);
int run_data_inspect(const Arguments& arguments);
int run_devices(const Arguments& arguments);
int run_evaluate(const Arguments& arguments, bool& started);
int run_export(const Arguments& arguments);
int run_import(const Arguments& arguments);
int run_init(const Arguments& arguments);
int run_inspect(const Arguments& arguments);
int run_launch(const Arguments& arguments, bool& started);
int run_plan(const Arguments& arguments);
int run_predict(const Arguments& arguments, bool& started);
int run_report(const Arguments& arguments);
int run_resume(const Arguments& arguments, bool& started);
int run_explain(const Arguments& arguments);
int run_schema();
int run_summary(const Arguments& arguments);
int run_train(const Arguments& arguments, bool& started);
int run_validate(const Arguments& arguments);
int run_verify(const Arguments& arguments);
int run_version();

// --- meaning
// --------------------------------------------------------------------------------------
LoadOptions load_options(const Arguments& arguments, bool require_data);
// The same without a file among the words, for configs that come from elsewhere.
LoadOptions override_options(const Arguments& arguments);
// Throws a ConfigError of the command line that no place in a file belongs to.
[[noreturn]] void refuse(const char* code, const std::string& message, const std::string& help);
// E140 for --profile: the config of a run or a checkpoint has none.
void refuse_profile(const Arguments& arguments, const std::string& run);
// --progress as a `run.verbose`, where it is given.
std::optional<Verbosity> progress_verbosity(const Arguments& arguments);
ConsoleOptions console_options(const Arguments& arguments, const Config& config);
ConsoleOptions console_options(const Arguments& arguments);  // all but `verbosity`
// --color with NO_COLOR, CLICOLOR_FORCE and TERM=dumb.
bool use_color(const std::string& flag, const TextStream& stream);
void show_warnings(const Diagnostics& warnings, const Arguments& arguments);
double seconds_now();  // steady clock
extern const char* const kVersion;

}  // namespace meshtrain
