#include "plan/comm_report.h"

#include <fmt/format.h>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/cost_model.h"

namespace meshtrain {
namespace {

std::string rate_text(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.2f} GB/s", bytes_per_second / 1e9) : "-";
}

}  // namespace

std::string comm_text(const std::vector<CommSeries>& all, const CommOptions& options,
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

std::string comm_json(const std::vector<CommSeries>& all, const CommOptions& options,
                      const std::string& devices) {
  using Json = nlohmann::ordered_json;
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

}  // namespace meshtrain
