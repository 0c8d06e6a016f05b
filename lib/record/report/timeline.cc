// The time line: one lane for each start of the run, with its epochs and saves, from log.txt.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "record/report/html.h"
#include "record/report/sections.h"

namespace meshtrain {
namespace {

constexpr double kLaneWidth = 1060, kNamesWidth = 170, kMargin = 12, kLane = 44;
constexpr size_t kMaxLanes = 60;  // the newest

struct Lane {
  double begin = 0, end = 0;             // seconds since 1970
  std::string first;                     // what the start said
  std::string last = "no end recorded";  // how it ended
  std::vector<RunMoment> epochs, saves;
};

std::vector<Lane> lanes_of(const RunRecord& record) {
  std::vector<Lane> lanes;
  for (const RunMoment& moment : record.moments) {
    if (moment.what == "start" || lanes.empty()) {
      lanes.push_back({.begin = moment.time, .first = moment.detail});
    }
    Lane& lane = lanes.back();
    lane.end = std::max(lane.end, moment.time);
    if (moment.what == "epoch") {
      lane.epochs.push_back(moment);
    } else if (moment.what == "saved") {
      lane.saves.push_back(moment);
    } else if (moment.what == "end") {
      lane.last = moment.detail;
    }
  }
  if (lanes.size() > kMaxLanes) {
    lanes.erase(lanes.begin(), lanes.end() - kMaxLanes);
  }
  return lanes;
}

std::string clock_text(double time) {  // "2026-01-05 14:03:22 UTC"
  const auto whole = static_cast<time_t>(time);
  tm parts = {};
  gmtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string lane_html(const Lane& lane, size_t index, double scale) {
  const double top = static_cast<double>(index) * kLane;
  const auto place = [&](double time) { return kNamesWidth + (time - lane.begin) * scale; };
  std::string out = fmt::format(
      R"(<text class="label" x="0" y="{:.0f}">{}</text><text class="tick" x="0" y="{:.0f}">{}</text>)",
      top + 16, clock_text(lane.begin), top + 31, html_text(lane.last));
  out +=
      fmt::format(R"(<rect class="lane" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="16" rx="3">)"
                  R"(<title>{}; {}</title></rect>)",
                  kNamesWidth, top + 6, std::max(place(lane.end) - kNamesWidth, 2.0),
                  html_text(lane.first), duration_text(lane.end - lane.begin));
  double from = lane.begin;
  for (const RunMoment& epoch : lane.epochs) {
    const std::string number = epoch.detail.substr(0, epoch.detail.find(' '));
    const bool odd = !number.empty() && (number.back() - '0') % 2 == 1;
    out += fmt::format(
        R"(<rect class="block series-0{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="16">)"
        R"(<title>epoch {}, {}</title></rect>)",
        odd ? " odd" : "", place(from), top + 6, std::max(place(epoch.time) - place(from), 0.5),
        html_text(epoch.detail), duration_text(epoch.time - from));
    from = epoch.time;
  }
  for (const RunMoment& save : lane.saves) {
    const double x = place(save.time);
    out += fmt::format(
        R"(<path class="save" d="M{:.1f} {:.1f}l-4 8h8z"><title>saved {} after {}</title></path>)",
        x, top + 23, html_text(save.detail), duration_text(save.time - lane.begin));
  }
  return out;
}

}  // namespace

std::string timeline_section(const RunRecord& record) {
  const std::vector<Lane> lanes = lanes_of(record);
  double longest = 1e-3;
  for (const Lane& lane : lanes) {
    longest = std::max(longest, lane.end - lane.begin);
  }
  if (lanes.empty()) {
    return "";
  }
  const double scale = (kLaneWidth - kNamesWidth - kMargin) / longest;
  std::string out = fmt::format(
      R"(<div class="wide"><svg viewBox="0 0 {} {}" role="img" aria-label="Time line">)",
      kLaneWidth, static_cast<double>(lanes.size()) * kLane);
  for (size_t i = 0; i < lanes.size(); ++i) {
    out += lane_html(lanes[i], i, scale);
  }
  out += "</svg></div>";
  out += fmt::format(
      "<p class=\"note\">One lane for each start; blocks are epochs, triangles are checkpoints. "
      "The "
      "whole width is {}.</p>",
      duration_text(longest));
  return section("Time line", out);
}

}  // namespace meshtrain
