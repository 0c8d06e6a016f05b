// meshtrain bench comm: how long collectives take here, and the constants of it for plan.
#include <fmt/format.h>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "cli.h"
#include "config/interval.h"
#include "config/source.h"
#include "engine/distribution.h"
#include "exec/join_devices.h"
#include "plan/cost_model.h"
#include "plan/measure_comm.h"
#include "restarts.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;

// Without a model that anybody runs: --mesh and --devices are checked as those of train.
Config config_of(const Arguments& arguments) {
  LoadOptions options = override_options(arguments);
  options.require_data = false;
  const bool counted = arguments.devices.find(':') != std::string::npos;  // cpu:4
  options.source =
      checked_source("bench", fmt::format("model: {{layers: [Input: {{shape: [1]}}, Dense: 1]}}\n"
                                          "compile: {{loss: mse}}\n"
                                          "distribution: {{device_mesh: {{shape: {}}}}}\n",
                                          counted && arguments.mesh.empty() ? "null" : "8"));
  Config config = load_config(options);
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

CommOptions sizes_of(const BenchArguments& bench) {
  CommOptions out;
  out.smallest = size_of(bench.smallest, "--smallest");
  out.largest = size_of(bench.largest, "--largest");
  out.seconds = bench.seconds;
  if (out.smallest > out.largest) {
    throw ConfigError(
        "E140", {},
        fmt::format("`--smallest {}` is more than `--largest {}`", bench.smallest, bench.largest));
  }
  return out;
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.2f} GB/s", bytes_per_second / 1e9) : "-";
}

std::string as_text(const std::vector<CommSeries>& all, const CommOptions& options,
                    const std::string& devices) {
  std::string out = fmt::format("devices   {}{}\n", devices,
                                options.processes.size() > 1
                                    ? fmt::format(" in {} processes", options.processes.size())
                                    : "");
  for (const CommSeries& series : all) {
    const int64_t n = series.group.devices;
    out += fmt::format(
        "\n{}{} over {}\n", series.name(),
        series.reductions.empty() ? "" : fmt::format(", {} reductions,", series.reductions),
        series.axis.empty() ? fmt::format("{} processes", n)
                            : fmt::format("{} ({})", series.axis, n));
    std::vector<std::vector<std::string>> rows = {{"bytes", "time", "rate", "bus rate"}};
    for (const CommPoint& point : series.points) {
      rows.push_back({format_bytes(point.bytes), seconds_text(point.seconds),
                      rate_text(static_cast<double>(point.bytes) / point.seconds),
                      rate_text(point.bus_rate)});
    }
    if (!series.points.empty()) {
      out += aligned_columns(rows, {0, 1, 2, 3});
      out += fmt::format("fit       {} + bytes / {}\n", seconds_text(series.fit.start),
                         rate_text(series.fit.rate));
    }
    if (series.points.empty() && !series.shortened) {
      out += fmt::format("          no tensor of at most {} splits over them\n",
                         format_bytes(options.largest));
    }
    if (series.shortened) {
      out += "          larger tensors of all devices would take more than 1 GiB here\n";
    }
  }
  return out + "\nfor a file of hardware (plan --hardware FILE):\n\n" +
         hardware_lines(all, options);
}

std::string as_json(const std::vector<CommSeries>& all, const CommOptions& options,
                    const std::string& devices) {
  Json list = Json::array();
  for (const CommSeries& series : all) {
    Json points = Json::array();
    for (const CommPoint& point : series.points) {
      points.push_back({{"bytes", point.bytes},
                        {"seconds", point.seconds},
                        {"rate", static_cast<double>(point.bytes) / point.seconds},
                        {"bus_rate", point.bus_rate},
                        {"moved", point.moved}});
    }
    list.push_back(
        {{"kind", series.name()},
         {"axis", series.axis.empty() ? Json(nullptr) : Json(series.axis)},
         {"reductions", series.reductions.empty() ? Json(nullptr) : Json(series.reductions)},
         {"members", series.group.devices},
         {"hosts", series.group.hosts},
         {"points", points},
         {"start", series.fit.start},
         {"rate_of_fit", series.fit.rate}});
  }
  return json_text(Json{{"devices", devices},
                        {"processes", options.processes.size()},
                        {"series", list},
                        {"hardware", hardware_lines(all, options)}},
                   2) +
         "\n";
}

}  // namespace

int run_bench_comm(const Arguments& arguments) {
  CommOptions options = sizes_of(arguments.bench);
  const Config config = config_of(arguments);
  Diagnostics diagnostics;
  const Distribution distribution =
      make_distribution(config, arguments.processes.size(), diagnostics);
  diagnostics.throw_if_errors();
  if (const std::optional<int> code = run_own_processes(arguments, config)) {
    return *code;
  }
  options.mesh = distribution.mesh;
  options.processes = arguments.processes;
  options.device =
      open_device(distribution.devices, {.cache_dir = gpu_cache_folder()}, options.processes);
  const AbortHook abort_hook = join_devices(options.device, options.processes);
  options.workers = options.device == nullptr ? make_worker_pool(arguments.num_workers) : nullptr;
  const std::string devices = distribution.devices.describe(options.mesh.num_devices());
  const std::vector<CommSeries> series = measure_collectives(options);
  if (arguments.processes.is_first()) {
    out_stream().write(arguments.format == "json" ? as_json(series, options, devices)
                                                  : as_text(series, options, devices));
  }
  return 0;
}

}  // namespace meshtrain
