#include "record/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "record/report/html.h"

namespace meshtrain {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double kWidth = 520, kHeight = 240;
constexpr double kLeft = 58, kRight = 14, kTop = 12, kBottom = 38;
constexpr size_t kMaxPoints = 600;  // of a line
constexpr size_t kMaxMarks = 40;    // more points than that are a line without marks
constexpr int kNumColors = 6;
constexpr int kNumDashes = 4;

// One axis: values to places, and round values to label.
struct Axis {
  double from = 0, to = 1;  // of the values, after the logarithm
  double begin = 0, end = 1;
  bool logarithmic = false;

  double place(double value) const {
    const double v = logarithmic ? std::log10(value) : value;
    return begin + (v - from) / (to - from) * (end - begin);
  }
};

// 1, 2 or 5 times a power of ten, so that about `count` steps make `range`.
double round_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * 1.0001) {
      return factor * power;
    }
  }
  return 10 * power;
}

std::vector<double> ticks_of(const Axis& axis, int count, bool whole) {
  std::vector<double> out;
  if (axis.logarithmic) {
    const int step = std::max(1, static_cast<int>(std::ceil((axis.to - axis.from) / count)));
    for (int power = static_cast<int>(std::ceil(axis.from)); power <= axis.to; power += step) {
      out.push_back(std::pow(10, power));
    }
    return out;
  }
  double step = round_step(axis.to - axis.from, count);
  step = whole ? std::max(1.0, std::round(step)) : step;
  const double slack = (axis.to - axis.from) * 1e-6;
  for (double n = std::ceil((axis.from - slack) / step); n * step <= axis.to + slack; ++n) {
    out.push_back(n * step);
  }
  return out;
}

struct Range {
  double least = HUGE_VAL, most = -HUGE_VAL;
  void add(double value) {
    if (std::isfinite(value)) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  bool empty() const { return least > most; }
};

Axis value_axis(const Range& range) {
  Axis axis{.begin = kHeight - kBottom, .end = kTop};
  axis.logarithmic = range.least > 0 && range.most / range.least > 100;
  if (axis.logarithmic) {
    axis.from = std::floor(std::log10(range.least));
    axis.to = std::ceil(std::log10(range.most));
    return axis;
  }
  const double width = range.most - range.least;
  const double size = std::max(std::abs(range.least), std::abs(range.most));
  constexpr double kRounding = 1e-9;  // less is no curve, and more ticks than doubles have steps
  const double margin = width > size * kRounding ? width * 0.06 : std::max(size * 0.1, 1e-12);
  axis.from = range.least >= 0 ? std::max(0.0, range.least - margin) : range.least - margin;
  axis.to = range.most + margin;
  return axis;
}

Axis place_axis(const Range& range) {
  Axis axis{.from = range.least, .to = range.most, .begin = kLeft, .end = kWidth - kRight};
  if (axis.from == axis.to) {
    axis.from -= 1;
    axis.to += 1;
  }
  return axis;
}

// Least and greatest of each group of neighbours, in their order.
Points thinned(const Points& points) {
  if (points.size() <= kMaxPoints) {
    return points;
  }
  Points out;
  const size_t groups = kMaxPoints / 2;
  for (size_t g = 0; g < groups; ++g) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(g * points.size() / groups);
    const auto end = points.begin() + static_cast<ptrdiff_t>((g + 1) * points.size() / groups);
    const auto lower = [](const auto& a, const auto& b) { return a.second < b.second; };
    auto [least, most] = std::minmax_element(begin, end, lower);
    if (most < least) {
      std::swap(least, most);
    }
    out.push_back(*least);
    if (least != most) {
      out.push_back(*most);
    }
  }
  return out;
}

std::string grid(const Axis& x, const Axis& y, const std::string& x_label) {
  std::string out;
  for (const double tick : ticks_of(y, 5, false)) {
    const double at = y.place(tick);
    out += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
                       kLeft, at, kWidth - kRight, at);
    out += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)",
                       kLeft - 7, at + 4, short_number(std::abs(tick) < 1e-15 ? 0 : tick));
  }
  for (const double tick : ticks_of(x, 8, true)) {
    out += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                       x.place(tick), kHeight - kBottom + 16, short_number(tick));
  }
  out += fmt::format(R"(<line class="axis" x1="{0:.1f}" y1="{1:.1f}" x2="{2:.1f}" y2="{1:.1f}"/>)",
                     kLeft, kHeight - kBottom, kWidth - kRight);
  return out +
         fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)",
                     kWidth - kRight, kHeight - 5, html_text(x_label));
}

std::string line(const ChartSeries& series, size_t index, const Axis& x, const Axis& y) {
  std::string path, marks;
  bool is_open = false;
  size_t run = 0;  // points since the last gap
  const bool marked = series.points.size() <= kMaxMarks;
  for (const auto& [px, py] : thinned(series.points)) {
    if (!std::isfinite(py)) {
      is_open = false;
      run = 0;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", is_open ? "L" : "M", x.place(px), y.place(py));
    is_open = true;
    ++run;
    if (marked) {
      marks += fmt::format(
          R"(<circle class="mark" cx="{:.1f}" cy="{:.1f}" r="2.6"><title>{} {}: {}</title></circle>)",
          x.place(px), y.place(py), html_text(series.label), short_number(px), short_number(py));
    }
  }
  return fmt::format(R"(<g class="series-{} dash-{}"><path class="line" d="{}"/>{}</g>)",
                     index % kNumColors, index / kNumColors % kNumDashes, path, marks);
}

std::string joint_line(const ChartJoint& joint, const Axis& x) {
  return fmt::format(
      R"(<g class="joint"><line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}"/>)"
      R"(<title>{3}</title></g>)",
      x.place(joint.x), kTop, kHeight - kBottom, html_text(joint.text));
}

std::string legend(const Chart& chart) {
  std::string out;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    out += fmt::format(R"(<span class="key series-{} dash-{}"><i></i>{}</span>)", i % kNumColors,
                       i / kNumColors % kNumDashes, html_text(chart.series[i].label));
  }
  return out;
}

}  // namespace

std::string chart_html(const Chart& chart) {
  Range xs, ys;
  for (const ChartSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      xs.add(x);
      ys.add(y);
    }
  }
  std::string out = fmt::format(R"(<figure class="chart"><figcaption><b>{}</b>{}</figcaption>)",
                                html_text(chart.title), legend(chart));
  if (ys.empty()) {
    return out + "<p>no finite value</p></figure>\n";
  }
  const Axis x = place_axis(xs), y = value_axis(ys);
  out += fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", kWidth, kHeight,
                     html_text(chart.title));
  out += grid(x, y, chart.x_label + (y.logarithmic ? ", logarithmic scale" : ""));
  for (const ChartJoint& joint : chart.joints) {
    if (joint.x >= x.from && joint.x <= x.to) {
      out += joint_line(joint, x);
    }
  }
  for (size_t i = 0; i < chart.series.size(); ++i) {
    out += line(chart.series[i], i, x, y);
  }
  return out + "</svg></figure>\n";
}

}  // namespace meshtrain
