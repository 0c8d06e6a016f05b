// The constants for plan of what was measured.
#include <fmt/format.h>

#include <algorithm>

#include "plan/hardware.h"
#include "plan/measure_comm.h"

namespace meshtrain {
namespace {

// The entry of the table that the device's name contains.
std::string known_name(const CommOptions& options) {
  const std::string name = options.device == nullptr ? "" : options.device->info().name;
  for (const Hardware& hardware : known_hardware()) {
    if (name.find(hardware.name) != std::string::npos) {
      return hardware.name;
    }
  }
  return "H100";
}

// Returns the series of calls with that name over the most devices, inside a host or between hosts;
// null when none was measured.
const CommSeries* widest(const std::vector<CommSeries>& all, const std::string& name, bool across) {
  const CommSeries* best = nullptr;
  for (const CommSeries& series : all) {
    const bool fits = series.between_processes && !series.is_exchange && !series.points.empty() &&
                      call_name(series.kind, series.reductions != "fast") == name &&
                      (series.group.hosts > 1) == across;
    if (fits && (best == nullptr || series.group.devices > best->group.devices)) {
      best = &series;
    }
  }
  return best;
}

std::string call_line(const std::string& name, const CommSeries& series) {
  const int64_t n = series.group.devices;
  const double rate = series.fit.rate * bus_factor(series.kind, n);
  return fmt::format("      {}: {{start: {:.6g}{}}}  # {} devices\n", name, series.fit.start,
                     rate > 0 ? fmt::format(", rate: {:.6g}", rate) : "", n);
}

std::string cluster_lines(const std::vector<CommSeries>& all, const CommOptions& options) {
  const ProcessGroup& group = *options.processes.group;
  const std::string like = known_name(options);
  std::string out = fmt::format("cluster:\n  like: {}\n  per_host: {}\n", like,
                                options.mesh.num_devices() / group.size() * group.local_size());
  for (const bool across : {false, true}) {
    std::string calls;
    for (const std::string& name : call_names()) {
      const CommSeries* series = widest(all, name, across);
      calls += series == nullptr ? "" : call_line(name, *series);
    }
    out += calls.empty() ? fmt::format("  # {} hosts nothing was measured: as of {}\n",
                                       across ? "Between" : "Inside", like)
                         : fmt::format("  {}:\n    calls:\n{}", across ? "network" : "link", calls);
  }
  return out;
}

// Bytes that the processor moves, in its cache and beyond.
std::string cpu_lines(const std::vector<CommSeries>& series) {
  const Hardware& cpu = *find_hardware(known_hardware(), "cpu");
  std::vector<double> small, small_seconds, large, large_seconds;
  for (const CommSeries& s : series) {
    for (const CommPoint& point : s.points) {
      const bool cached = point.moved <= cpu.cache_bytes;
      (cached ? small : large).push_back(static_cast<double>(point.moved));
      (cached ? small_seconds : large_seconds).push_back(point.seconds);
    }
  }
  std::string out = "cpu:\n";
  if (!small.empty()) {
    const LineFit fit = fit_line(small, small_seconds);
    out += fmt::format("  start: {:.3g}\n", fit.start);
    out += fit.rate > 0 ? fmt::format("  cache_rate: {:.3g}\n", fit.rate) : "";
  }
  if (!large.empty()) {
    const LineFit fit = fit_line(large, large_seconds);
    out += fit.rate > 0 ? fmt::format("  memory_rate: {:.3g}\n", fit.rate) : "";
  }
  return out;
}

}  // namespace

std::string hardware_lines(const std::vector<CommSeries>& series, const CommOptions& options) {
  if (std::all_of(series.begin(), series.end(),
                  [](const CommSeries& one) { return one.points.empty(); })) {
    return fmt::format("# nothing was measured: {}\n",
                       series.empty() ? "no axis has several devices"
                                      : "no tensor of these sizes splits over the devices");
  }
  if (options.processes.size() > 1) {
    return cluster_lines(series, options);
  }
  return options.device == nullptr ? cpu_lines(series)
                                   : "# virtual devices of one GPU: plan has none of these\n";
}

}  // namespace meshtrain
