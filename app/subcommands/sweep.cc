// meshtrain sweep: many runs of one config, each with other values; can be stopped and resumed.
#include "train/sweep.h"

#include <cstdlib>

#include "comm/environment.h"
#include "run_flags.h"
#include "train/comparison.h"

namespace meshtrain {
namespace {

struct SweepOptions {
  ConfigWords config;
  SweepFlags flags;
  std::string run_dir, log_format = "text";
  int64_t threads = 0;
  bool resumes = false, retries = false, shows_plan = false, uses_slurm = false, quiet = false;
  SlurmOptions slurm;
};

void write_out(std::string_view text) {
  out_stream().write(text);
}

SweepRequest request_of(const SweepOptions& options, const Invocation& invocation) {
  SweepRequest request;
  request.load = options.config.overrides();
  request.flags = options.flags;
  request.dir = options.run_dir;
  request.resume = options.resumes;
  request.retry = options.retries;
  request.threads = options.threads;
  request.version = MESHTRAIN_VERSION;
  request.command_line = invocation.command_line;
  request.is_quiet = options.quiet;
  request.prints_events = options.log_format == "json";
  request.out = write_out;
  request.err = [](std::string_view text) { err_stream().write(text); };
  if (request.load.files.empty()) {
    refuse("E140", "no sweep and no config given",
           "meshtrain sweep CONFIG --grid KEY=VALUE,VALUE, a sweep.yaml, or the folder of a sweep");
  }
  return request;
}

int run_sweep_command(const SweepOptions& options, Invocation& invocation) {
  const SweepRequest request = request_of(options, invocation);
  const LaunchEnvironment environment =
      read_environment([](const char* name) { return std::getenv(name); });
  if (!environment.is_alone() && !options.shows_plan) {
    refuse("E140",
           fmt::format("a sweep starts its runs itself, and a launcher started {} of it",
                       environment.size),
           "start it without the launcher; `-j N` trains N runs at a time");
  }
  if (options.shows_plan) {
    write_out(options.uses_slurm ? sweep_slurm_script(request, options.slurm)
                                 : sweep_listing(request));
    return 0;
  }
  if (options.uses_slurm) {
    return submit_sweep(request, options.slurm);
  }
  std::string dir;
  const int code = run_sweep(request, dir);
  if (options.log_format == "text") {
    write_out(comparison_text(compare_runs({dir}), TableFormat::kText));
  }
  return code;
}

}  // namespace

void add_sweep(Subcommands& to) {
  auto [app, options, subcommand] = to.add<SweepOptions>(
      "sweep", "Train a config with many values: grid, list or random; resumable",
      run_sweep_command);
  app.add_option("CONFIG", options.config.words,
                 "Configs, or a sweep.yaml, or the folder of a sweep, which is resumed; and "
                 "overrides for all runs")
      ->option_text("[KEY=VALUE...]")
      ->required();
  const auto add_values = [&app = app](const char* flag, std::vector<std::string>& values,
                                       const char* meaning) {
    app.add_option(flag, values, meaning)
        ->type_name("KEY=VALUE,...")
        ->allow_extra_args(false)
        ->group("Sweep");
  };
  add_values("--grid", options.flags.grid,
             "Every combination of the values of all --grid; KEY is one of the config, or mesh, "
             "devices, batch_size, epochs. Values with commas are parted by `;`");
  add_values("--zip", options.flags.zip, "The first values of all --zip together, the second, ...");
  add_values("--random", options.flags.random,
             "Drawn values: of a list, or as 0..1, log:1e-4..1e-1, int:16..256, "
             "log:int:16..256");
  app.add_option("--trials", options.flags.trials, "Runs to draw for --random")
      ->type_name("N")
      ->check(whole_number(1, 100000))
      ->group("Sweep");
  app.add_option("--sweep-seed", options.flags.seed, "Seed of what --random draws; default 0")
      ->type_name("N")
      ->check(whole_number(0, std::numeric_limits<int64_t>::max()))
      ->group("Sweep");
  app.add_option("-j,--parallel", options.flags.parallel,
                 "Runs at a time; they share the cores, or the GPUs. Default 1")
      ->type_name("N")
      ->check(whole_number(1, 4096))
      ->group("Sweep");
  app.add_option("--threads", options.threads,
                 "Threads of each run; default its share of the cores")
      ->type_name("N")
      ->check(whole_number(1, 1024))
      ->group("Sweep");
  app.add_flag("--early-stop", options.flags.early_stop,
               "End runs whose best loss is worse than the median of three or more finished runs "
               "was on average until that epoch")
      ->group("Sweep");
  app.add_option("-o,--run-dir", options.run_dir, "The sweep's folder; default sweeps/NAME/ID")
      ->type_name("DIR")
      ->group("Sweep");
  app.add_flag("-r,--resume", options.resumes,
               "Continue the sweep in -o, or the newest of this name; values may be added")
      ->group("Sweep");
  app.add_flag("--retry", options.retries, "Run those again that failed")->group("Sweep");
  app.add_flag("-n,--dry-run", options.shows_plan, "List the runs, or show the batch script")
      ->group("Sweep");
  app.add_flag("--slurm", options.uses_slurm, "Submit a Slurm job array, a task for each run")
      ->group("Sweep");
  app.add_option("--sbatch", options.slurm.options,
                 "An option of sbatch, as --sbatch=--partition=gpu; may be repeated")
      ->type_name("OPTION")
      ->allow_extra_args(false)
      ->group("Sweep");
  options.config.add_flags(app);
  app.add_option("--log-format", options.log_format,
                 "On stdout: a line for each run and a table, or the journal's lines")
      ->type_name("text|json")
      ->check(one_of({"text", "json"}))
      ->group("Output");
  add_quiet_flag(app, options.quiet, "Only the table and errors");
  add_color_flag(app);
  app.footer(
      "The folder has sweep.jsonl, its journal, and a run 001, 002, ... with its output beside "
      "it.\n"
      "A signal stops all runs, which save; the same command with --resume, or `meshtrain sweep "
      "DIR`,\ncontinues: each run is done once. `meshtrain compare DIR` shows the table.\n"
      "Exit codes: 0 all done; 7 a run failed; 75 stopped.");
}

}  // namespace meshtrain
