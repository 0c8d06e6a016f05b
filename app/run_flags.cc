#include "run_flags.h"

#include <cstdlib>

#include "base/host.h"
#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {

constexpr int64_t kMostThreads = 1024;

namespace {

// OMP_NUM_THREADS, the first number of "4,2"; 0 where it says nothing.
int threads_of_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const auto count = try_integer(text == nullptr ? "" : split(text, ',')[0]);
  return count && *count > 0 && *count <= kMostThreads ? static_cast<int>(*count) : 0;
}

}  // namespace

void EngineFlags::add_threads(CLI::App& app) {
  app.add_option(
         "--threads", threads,
         "Threads that compute, of each process; default OMP_NUM_THREADS, else one per core")
      ->type_name("N")
      ->check(whole_number(1, kMostThreads));
}

void EngineFlags::add_to(CLI::App& app) {
  add_threads(app);
  add_dump_ir_flag(app, dump_ir);
  app.add_flag("--no-cuda-graph", no_cuda_graph,
               "On a GPU: start kernel by kernel, to see which one fails");
}

EngineOptions EngineFlags::options(const Invocation& invocation) const {
  const bool is_alone = invocation.processes.size() == 1;  // launchers set the variable, too
  return {.num_workers = threads > 0                               ? static_cast<int>(threads)
                         : is_alone && invocation.num_workers == 0 ? threads_of_environment()
                                                                   : invocation.num_workers,
          .dump_ir = dump_ir,
          .use_cuda_graph = !no_cuda_graph,
          .processes = invocation.processes};
}

void ResumeFlags::add_to(CLI::App& app, ConfigWords& config) {
  app.add_option("--allow", restore.allow, "Accept that this key differs from the checkpoint's")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->group("Resuming");
  app.add_flag("--reset-cursor", restore.reset_cursor, "Restart the interrupted epoch")
      ->group("Resuming");
  app.add_flag("--reset-optimizer", restore.reset_optimizer,
               "Load the weights only, and reset the optimizer's state")
      ->group("Resuming");
  app.add_flag(
         "--partial", restore.partial,
         "Load only the weights whose path and shape match this model; initialize the others, "
         "and name them in a warning")
      ->group("Resuming");
  config.add_key_flag(app, "--max-time", "23h30m", "run.max_time",
                      "Save and leave before this time is over");
}

void add_dump_ir_flag(CLI::App& app, std::string& dump_ir) {
  app.add_option("--dump-ir", dump_ir, "Write the graph after each pass")->type_name("DIR");
}

void add_run_dir_flag(CLI::App& app, std::string& run_dir, const char* meaning) {
  app.add_option("-o,--run-dir", run_dir, meaning)->type_name("DIR");
}

void add_weights_flag(CLI::App& app, std::string& weights) {
  app.add_option("-w,--weights", weights,
                 "Weights: .safetensors or .npz by Keras path, .weights.h5 or .keras; default "
                 "fit.initial_weights")
      ->type_name("FILE");
}

std::optional<LoadOptions> json_run(const OutputFlags& output, const ConfigWords& config) {
  if (!output.is_json()) {
    return std::nullopt;
  }
  try {
    return config.overrides();
  } catch (const ConfigError&) {  // of these words, which end the run
    return LoadOptions();
  }
}

RunRequest run_request(const Invocation& invocation, LoadOptions load, const OutputFlags& output,
                       const EngineFlags& engine) {
  RunRequest request;
  request.shown_name = join(load.files, " ");
  request.load = std::move(load);
  request.version = MESHTRAIN_VERSION;
  request.command_line = invocation.command_line;
  request.engine = engine.options(invocation);
  request.console = output.console();
  request.verbosity = output.verbosity();
  request.prints_events = output.is_json();
  request.tells_more = output.verbose > 0;
  request.warn = [quiet = output.quiet](const Diagnostics& warnings) {
    show_warnings(warnings, quiet);
  };
  request.started_at = steady_seconds();
  return request;
}

}  // namespace meshtrain
