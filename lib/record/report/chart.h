// Charts as inline SVG: no script, colours by CSS classes of the page (series-0, series-1, ...).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace meshtrain {

struct ChartSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;  // by x; a value that is not finite is a gap
};

// Where a run was resumed.
struct ChartJoint {
  double x = 0;
  std::string text;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::vector<ChartSeries> series;
  std::vector<ChartJoint> joints;
};

// A <figure>. Values over more than two orders of magnitude get a logarithmic axis. Long series are
// thinned without losing extremes.
std::string chart_html(const Chart& chart);

}  // namespace meshtrain
