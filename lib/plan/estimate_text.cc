#include "plan/estimate_text.h"

#include <algorithm>

#include "base/columns.h"
#include "base/text.h"
#include "plan/fold_rows.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;

std::string place_text(const GroupShape& group) {
  if (group.hosts == 1) {
    return "inside a host";
  }
  return group.per_host() == 1 ? fmt::format("across {} hosts", group.hosts)
                               : fmt::format("{} hosts x {}", group.hosts, group.per_host());
}

std::string hardware_line(const Estimate& e) {
  const Hardware& h = e.hardware;
  if (h.is_virtual) {
    return fmt::format("hardware  {}: {} virtual device{} on one processor\n", h.name, e.devices,
                       e.devices == 1 ? "" : "s");
  }
  return fmt::format(
      "hardware  {} x {} on {} host{}; usable: {:.0f} TFLOP/s in {}, memory {:.1f} TB/s, links "
      "{:.0f} GB/s, network {:.0f} GB/s a device\n",
      e.devices, h.name, e.hosts, e.hosts == 1 ? "" : "s",
      h.matmul[static_cast<size_t>(e.products)] / 1e12, matmul_type_name(e.products),
      h.memory_rate / 1e12, h.link_rate / 1e9, h.network_rate / 1e9);
}

std::string fits_text(const PlanSummary& summary) {
  const Estimate& e = *summary.estimate;
  if (e.hardware.memory == 0) {
    return "";
  }
  return fmt::format("memory    {} of {} a device: {}\n", format_bytes(summary.memory.total()),
                     format_bytes(e.hardware.memory), e.fits ? "fits" : "DOES NOT FIT");
}

std::string axes_line(const Estimate& e) {
  std::vector<std::string> axes;
  for (const AxisPlace& axis : e.axes) {
    axes.push_back(fmt::format("{}={} {}", axis.name, axis.group.devices, place_text(axis.group)));
  }
  return e.hardware.is_virtual ? "" : fmt::format("axes      {}\n", join(axes, ", "));
}

std::string calls_table(const PlanSummary& summary) {
  const Estimate& e = *summary.estimate;
  if (e.calls.empty()) {
    return "";
  }
  std::vector<std::vector<std::string>> cells;
  std::vector<std::string> keys;
  for (size_t i = 0; i < e.calls.size(); ++i) {
    const PlannedCollective& c = summary.collectives[i];
    const EstimatedCall& call = e.calls[i];
    cells.push_back({std::string(phase_name(c.phase)), std::string(move_name(c.kind)),
                     fmt::format("{} ({})", join(c.axes, ", "), c.group_size),
                     place_text(call.group), format_bytes(c.bytes_sent), call.algorithm,
                     seconds_text(call.seconds)});
    keys.push_back(join(cells.back(), "\n"));
  }
  // Equal ones are one row: the time is of each, what is exposed of all together.
  const std::vector<size_t> first = first_equal(keys), times = times_of(first);
  std::vector<double> exposed(first.size(), 0);
  for (size_t i = 0; i < first.size(); ++i) {
    exposed[first[i]] += e.calls[i].exposed;
  }
  const bool has_times = std::find(times.begin(), times.end(), size_t{0}) != times.end();
  TextRows rows = {{"phase", "collective", "over", "lies", "sent", "algorithm", "time", "exposed"}};
  if (has_times) {
    rows[0].insert(rows[0].begin() + 2, "times");
    rows[0].back() = "exposed in all";
  }
  for (size_t i = 0; i < first.size(); ++i) {
    if (times[i] == 0) {
      continue;
    }
    cells[i].push_back(exposed[i] > 0 ? seconds_text(exposed[i]) : "-");
    if (has_times) {
      cells[i].insert(cells[i].begin() + 2, fmt::format("{}", times[i]));
    }
    rows.push_back(std::move(cells[i]));
  }
  return "\n" + aligned_columns(rows) + "\n";
}

Json number_or_null(double value) {
  return value > 0 ? Json(value) : Json(nullptr);
}

Json hardware_json(const Hardware& h) {
  Json peak, usable;
  for (size_t t = 0; t < kNumMatmulTypes; ++t) {
    const std::string name(matmul_type_name(static_cast<MatmulType>(t)));
    peak[name] = h.peak[t];
    usable[name] = h.matmul[t];
  }
  return {{"name", h.name},
          {"memory", h.memory == 0 ? Json(nullptr) : Json(h.memory)},
          {"memory_rate", h.memory_rate},
          {"peak", peak},
          {"matmul", usable},
          {"per_host", h.is_virtual ? Json(nullptr) : Json(h.per_host)},
          {"link_rate", number_or_null(h.link_rate)},
          {"switch_rate", number_or_null(h.switch_rate)},
          {"network_rate", number_or_null(h.network_rate)}};
}

// Whole samples, and two digits of a few.
std::string speed_text(double speed) {
  return speed < 9.5 ? fmt::format("{:.2g}", speed)
                     : format_thousands(static_cast<int64_t>(speed + 0.5));
}

}  // namespace

std::string estimate_text(const PlanSummary& summary) {
  const Estimate& e = *summary.estimate;
  std::string out = hardware_line(e) + fits_text(summary) + axes_line(e) + calls_table(summary);
  out += fmt::format("step      {}: products {}, memory {}, {} kernels' begin and end {}",
                     seconds_text(e.step), seconds_text(e.compute), seconds_text(e.memory),
                     e.kernels, seconds_text(e.launch));
  if (!e.calls.empty()) {
    out += fmt::format(", communication {} of {} not hidden", seconds_text(e.exposed),
                       seconds_text(e.communication));
  }
  out += e.jitter > 0 ? fmt::format(", the slowest {}", seconds_text(e.jitter)) : "";
  out += fmt::format("\nspeed     {} samples/s, MFU {:.1f}% of {}; bound by {}\n",
                     speed_text(e.samples_per_second), e.mfu * 100, matmul_type_name(e.products),
                     e.bound);
  for (const std::string& note : e.notes) {
    out += "note      " + note + "\n";
  }
  return out + "          an estimate: constants and limits are in tests/bench/README.md\n";
}

Json estimate_json(const PlanSummary& summary) {
  const Estimate& e = *summary.estimate;
  Json axes = Json::array(), calls = Json::array();
  for (const AxisPlace& axis : e.axes) {
    axes.push_back({{"name", axis.name},
                    {"size", axis.group.devices},
                    {"hosts", axis.group.hosts},
                    {"per_host", axis.group.per_host()}});
  }
  for (const EstimatedCall& call : e.calls) {
    calls.push_back({{"seconds", call.seconds},
                     {"exposed_seconds", call.exposed},
                     {"algorithm", call.algorithm},
                     {"hosts", call.group.hosts},
                     {"per_host", call.group.per_host()}});
  }
  return {{"hardware", hardware_json(e.hardware)},
          {"devices", e.devices},
          {"hosts", e.hosts},
          {"fits", e.fits},
          {"axes", axes},
          {"collectives", calls},
          {"kernels", e.kernels},
          {"compute_seconds", e.compute},
          {"memory_seconds", e.memory},
          {"launch_seconds", e.launch},
          {"communication_seconds", e.communication},
          {"overlapped_seconds", e.communication - e.exposed},
          {"exposed_seconds", e.exposed},
          {"jitter_seconds", e.jitter},
          {"step_seconds", e.step},
          {"samples_per_second", e.samples_per_second},
          {"products", matmul_type_name(e.products)},
          {"product_flops", e.flops},
          {"mfu", e.mfu},
          {"bound", e.bound},
          {"one_device_seconds", e.one_device ? Json(*e.one_device) : Json(nullptr)},
          {"notes", e.notes}};
}

}  // namespace meshtrain
