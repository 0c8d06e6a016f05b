// Measuring collectives: the line that is fitted, and that every kind is measured on every axis.
#include "train/measure_comm.h"

#include <doctest/doctest.h>

#include "support/temp_folder.h"
#include "train/hardware_file.h"

using namespace meshtrain;

TEST_CASE("points on a line give the line") {
  std::vector<double> x, seconds;
  for (double bytes = 1024; bytes < 1e8; bytes *= 4) {
    x.push_back(bytes);
    seconds.push_back(20e-6 + bytes / 5e9);
  }
  const LineFit fit = fit_line(x, seconds);
  CHECK(fit.start == doctest::Approx(20e-6));
  CHECK(fit.rate == doctest::Approx(5e9));
}

TEST_CASE("neither start nor rate of a fitted line is negative") {
  const LineFit through_origin = fit_line({1e3, 1e6}, {0.5e-6, 1e-3});
  CHECK(through_origin.start == 0);
  CHECK(through_origin.rate > 0);
  const LineFit flat = fit_line({1e3, 1e6}, {2e-6, 1e-6});
  CHECK(flat.start > 0);
  CHECK(flat.rate == 0);
  const LineFit one = fit_line({1e3}, {3e-6});
  CHECK(one.start == doctest::Approx(3e-6));
  CHECK(one.rate == 0);
}

TEST_CASE("every collective is measured on each axis that has several devices") {
  CommOptions options;
  options.mesh = DeviceMesh({2, 1, 4}, {"data", "one", "model"});
  options.workers = make_worker_pool(1);
  options.smallest = 1000;
  options.largest = 70000;
  options.seconds = 0.001;
  const std::vector<CommSeries> all = measure_collectives(options);
  REQUIRE(all.size() == 8);
  for (const CommSeries& series : all) {
    CAPTURE(series.kind);
    CHECK(series.axis != "one");
    CHECK(series.members == (series.axis == "data" ? 2 : 4));
    REQUIRE(series.points.size() == 4);  // 1000, 4000, 16000, 64000
    for (const CommPoint& point : series.points) {
      CHECK(point.seconds > 0);
      CHECK(point.bytes % (4 * series.members) == 0);
    }
    // Operands of two devices and one result, and so on.
    const int64_t n = series.members, bytes = series.points[0].bytes;
    CHECK(series.points[0].moved == (series.kind == "all_reduce"       ? (n + 1) * bytes
                                     : series.kind == "all_gather"     ? 2 * bytes
                                     : series.kind == "reduce_scatter" ? (n + 1) * bytes
                                                                       : 2 * n * bytes));
    CHECK(series.fit.start >= 0);
    CHECK_FALSE(series.shortened);
  }
  // What is printed can be read.
  const test::TempFolder folder;
  const std::string path = folder.write("own.yaml", hardware_lines(all, options));
  CHECK(find_hardware(load_hardware({path, {}}), "cpu")->is_virtual);
}

TEST_CASE("tensors that would take too much memory are left out") {
  CommOptions options;
  options.mesh = DeviceMesh({64}, {"data"});
  options.workers = make_worker_pool(1);
  options.smallest = int64_t{16} << 20;
  options.largest = int64_t{64} << 20;
  options.seconds = 0.001;
  for (const CommSeries& series : measure_collectives(options)) {
    CHECK(series.shortened == (series.kind != "all_gather"));
  }
}
