// meshtrain bench comm: how long collectives take here, and the constants of it for plan.
#include <fmt/format.h>

#include "config/interval.h"
#include "config/source.h"
#include "config_words.h"
#include "engine/distribution.h"
#include "exec/join_devices.h"
#include "output.h"
#include "plan/comm_report.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct BenchCommOptions {
  ConfigWords mesh;  // --mesh and --devices alone
  std::string smallest = "1 KiB", largest = "64 MiB", format = "text";
  double seconds = 0.05;
};

// Without a model that anybody runs: --mesh and --devices are checked as those of train.
Config config_of(const BenchCommOptions& options) {
  LoadOptions load = options.mesh.overrides();
  load.require_data = false;
  const bool counted = options.mesh.value_of("--devices").find(':') != std::string::npos;  // cpu:4
  load.source = checked_source(
      "bench", fmt::format("model: {{layers: [Input: {{shape: [1]}}, Dense: 1]}}\n"
                           "compile: {{loss: mse}}\n"
                           "distribution: {{device_mesh: {{shape: {}}}}}\n",
                           counted && options.mesh.value_of("--mesh").empty() ? "null" : "8"));
  Config config = load_config(load);
  config.fit.batch_size.value = 0;  // splits over any axis
  return config;
}

int64_t size_of(const std::string& text, const char* flag) {
  const std::optional<int64_t> bytes = parse_bytes(text);
  if (!bytes) {
    throw ConfigError("E140", {},
                      fmt::format("`{} {}` is no size; write 64 KiB or 16 MiB", flag, text));
  }
  return *bytes;
}

CommOptions sizes_of(const BenchCommOptions& options) {
  CommOptions out;
  out.smallest = size_of(options.smallest, "--smallest");
  out.largest = size_of(options.largest, "--largest");
  out.seconds = options.seconds;
  if (out.smallest > out.largest) {
    throw ConfigError("E140", {},
                      fmt::format("`--smallest {}` is more than `--largest {}`", options.smallest,
                                  options.largest));
  }
  return out;
}

int run_bench_comm(const BenchCommOptions& options, Invocation& invocation) {
  CommOptions bench = sizes_of(options);
  const Config config = config_of(options);
  Diagnostics diagnostics;
  const Distribution distribution =
      make_distribution(config, invocation.processes.size(), diagnostics);
  diagnostics.throw_if_errors();
  if (const std::optional<int> code =
          run_own_processes({invocation.given_words}, config, invocation.processes)) {
    return *code;
  }
  bench.mesh = distribution.mesh;
  bench.processes = invocation.processes;
  bench.device =
      open_device(distribution.devices, {.cache_dir = gpu_cache_folder()}, bench.processes);
  const AbortHook abort_hook = join_devices(bench.device, bench.processes);
  bench.workers = bench.device == nullptr ? make_worker_pool(invocation.num_workers) : nullptr;
  const std::string devices = distribution.devices.describe(bench.mesh.num_devices());
  const std::vector<CommSeries> series = measure_collectives(bench);
  if (invocation.processes.is_first()) {
    out_stream().write(options.format == "json" ? comm_json(series, bench, devices)
                                                : comm_text(series, bench, devices));
  }
  return 0;
}

}  // namespace

void add_bench_comm(Subcommands& to) {
  auto [app, options, subcommand] = to.add<BenchCommOptions>(
      "bench comm",
      "Time of the collectives by size, with the constants that `plan --hardware` takes",
      run_bench_comm);
  options.mesh
      .add_flag(app, "--mesh", "distribution.device_mesh.shape",
                "Shape of the mesh; each of its axes is measured; default 8")
      ->type_name("4x2|data=4,model=2");
  options.mesh
      .add_flag(app, "--devices", "distribution.device_mesh.devices", "Devices of the mesh")
      ->type_name("cpu:8|gpu:0x8|auto");
  app.add_option("--smallest", options.smallest, "Least bytes of a tensor")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--largest", options.largest, "Most bytes of a tensor")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "For each size")
      ->type_name("X")
      ->check(number_between(0.001, 60))
      ->capture_default_str();
  add_format_flag(app, options.format);
  subcommand.shared = [&options = options] {
    return SharedCommand{.load = [&options] { return options.mesh.overrides(); },
                         .has_config = false};
  };
}

}  // namespace meshtrain
