// Measuring collectives: the line that is fitted, and that every kind is measured on every axis.
#include "plan/measure_comm.h"

#include <doctest/doctest.h>

#include "base/nccl_settings.h"
#include "engine/make_plan.h"
#include "plan/hardware_file.h"
#include "support/engine_case.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"

using namespace meshtrain;

namespace {

// The first of several processes, so many on a host.
class Placed : public ProcessGroup {
 public:
  Placed(int size, int local_size) : size_(size), local_size_(local_size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  int local_rank() const override { return 0; }
  int local_size() const override { return local_size_; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return std::vector<std::string>(static_cast<size_t>(size_), std::string(mine));
  }
  std::unique_ptr<Transfer> make_exchange(std::vector<Message>, std::vector<Message>) override {
    throw InternalError("nothing is sent here");
  }
  std::unique_ptr<Transfer> make_all_reduce(Reduction, DType, std::byte*, int64_t,
                                            const std::vector<int>&) override {
    throw InternalError("nothing is sent here");
  }

 private:
  int size_, local_size_;
};

CommSeries series_on_line(MoveKind kind, std::string reductions, GroupShape group, LineFit line) {
  CommSeries series;
  series.kind = kind;
  series.reductions = std::move(reductions);
  series.axis = "data";
  series.group = group;
  series.between_processes = true;
  for (int64_t bytes = 1024; bytes < 1e8; bytes *= 4) {
    CommPoint point;
    point.bytes = bytes;
    point.seconds = line.start + static_cast<double>(bytes) / line.rate;
    series.points.push_back(point);
  }
  series.fit = line;
  return series;
}

// Each kind on another line, so that none is taken for another.
std::vector<CommSeries> all_kinds(GroupShape group, double factor) {
  std::vector<CommSeries> out;
  const auto add = [&](MoveKind kind, const char* reductions, double start, double rate) {
    out.push_back(
        series_on_line(kind, reductions, group, {start * 1e-6 * factor, rate * 1e9 / factor}));
  };
  add(MoveKind::kAllReduce, "fixed", 41, 11);
  add(MoveKind::kAllReduce, "fast", 23, 19);
  add(MoveKind::kAllGather, "", 17, 37);
  add(MoveKind::kReduceScatter, "fixed", 29, 31);
  add(MoveKind::kReduceScatter, "fast", 13, 43);
  add(MoveKind::kAllToAll, "", 7, 47);
  return out;
}

// What `plan` says of a model whose gradients are 1 MiB of kernels without biases.
PlanSummary plan_with(const std::string& yaml_of_distribution, const Hardware& hardware) {
  const Config config = test::config_from(
      "model:\n  layers:\n    - Input: {shape: [512]}\n"
      "    - Dense: {units: 512, use_bias: false}\n"
      "compile: {optimizer: adam, loss: mse}\nfit: {batch_size: 64}\n" +
      yaml_of_distribution);
  const Setup setup(config, nullptr);
  return make_plan(setup, 0, true, &hardware);
}

// The line's time of a call: its tensor's bytes, as the series count them; among other numbers of
// devices, those that each sends.
double on_line(const std::vector<CommSeries>& all, const PlannedCollective& call, bool fixed) {
  for (const CommSeries& series : all) {
    if (series.kind == call.kind &&
        (series.reductions.empty() || series.reductions == (fixed ? "fixed" : "fast"))) {
      const double bytes =
          static_cast<double>(call.bytes) *
          (call.kind == MoveKind::kAllGather ? static_cast<double>(call.group_size) : 1);
      const double more =
          bus_factor(series.kind, call.group_size) / bus_factor(series.kind, series.group.devices);
      return series.fit.start + bytes * more / series.fit.rate;
    }
  }
  return -1;
}

}  // namespace

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
    CAPTURE(series.name());
    CHECK(series.axis != "one");
    CHECK(series.group == GroupShape{series.axis == "data" ? 2 : 4, 1});
    CHECK(series.reductions.empty());
    REQUIRE(series.points.size() == 4);  // 1000, 4000, 16000, 64000
    for (const CommPoint& point : series.points) {
      CHECK(point.seconds > 0);
      CHECK(point.bytes % (4 * series.group.devices) == 0);
    }
    // Operands of two devices and one result, and so on.
    const int64_t n = series.group.devices, bytes = series.points[0].bytes;
    CHECK(series.points[0].moved == (series.kind == MoveKind::kAllReduce       ? (n + 1) * bytes
                                     : series.kind == MoveKind::kAllGather     ? 2 * bytes
                                     : series.kind == MoveKind::kReduceScatter ? (n + 1) * bytes
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
    CHECK(series.shortened == (series.kind != MoveKind::kAllGather));
  }
}

TEST_CASE("what splits over many devices is measured once and nothing that is larger than asked") {
  CommOptions options;
  options.mesh = DeviceMesh({64}, {"data"});
  options.workers = make_worker_pool(1);
  options.smallest = 1 << 10;  // 16 KiB split over all
  options.largest = 64 << 10;
  options.seconds = 0.0001;
  for (const CommSeries& series : measure_collectives(options)) {
    CAPTURE(series.name());
    REQUIRE(series.points.size() == 2);
    CHECK(series.points[0].bytes == 16 << 10);
    CHECK(series.points[1].bytes == 64 << 10);
  }
  options.mesh = DeviceMesh({4096}, {"data"});  // 64 MiB do
  const std::vector<CommSeries> none = measure_collectives(options);
  REQUIRE(none.size() == 4);
  for (const CommSeries& series : none) {
    CHECK(series.points.empty());
    CHECK_FALSE(series.shortened);
  }
  CHECK(hardware_lines(none, options) ==
        "# nothing was measured: no tensor of these sizes splits over the devices\n");
  options.mesh = DeviceMesh({1}, {"data"});
  CHECK(hardware_lines(measure_collectives(options), options) ==
        "# nothing was measured: no axis has several devices\n");
}

TEST_CASE("between processes sums are timed with fixed and with fast reductions") {
  run_as_processes(2, [](const std::shared_ptr<ThreadGroup>& group) {
    CommOptions options;
    options.mesh = DeviceMesh({2, 2}, {"data", "model"});
    options.processes.group = group;
    options.workers = make_worker_pool(1);
    options.smallest = options.largest = 4096;
    options.seconds = 0.001;
    const std::vector<CommSeries> all = measure_collectives(options);
    std::vector<std::string> names;
    for (const CommSeries& series : all) {
      REQUIRE(series.points.size() == 1);
      CHECK(series.points[0].seconds > 0);
      CHECK(series.between_processes == (series.axis != "model"));
      names.push_back(fmt::format("{} {} {}", series.name(), series.reductions, series.axis));
    }
    CHECK(names == std::vector<std::string>{
                       "all_reduce fixed data", "all_reduce fast data", "all_gather  data",
                       "reduce_scatter fixed data", "reduce_scatter fast data", "all_to_all  data",
                       "all_reduce  model", "all_gather  model", "reduce_scatter  model",
                       "all_to_all  model", "exchange  "});
    CHECK(group->bytes_reduced() > 0);  // by the library, for fast ones
    CHECK(group->exchanges() > 0);
    // Each of the six kinds is written once, and none of calls within a process.
    const test::TempFolder folder;
    const std::string path = folder.write("own.yaml", hardware_lines(all, options));
    const std::vector<Hardware> table = load_hardware({path, {}});
    const Hardware& cluster = *find_hardware(table, "cluster");
    CHECK(cluster.per_host == 4);
    CHECK(cluster.link_calls.size() == call_names().size());
    CHECK(cluster.network_calls.empty());
  });
}

TEST_CASE("plan takes the time that was measured from the file that bench comm writes") {
  CommOptions options;
  options.mesh = DeviceMesh({4}, {"data"});
  options.processes.group = std::make_shared<Placed>(4, 4);
  const std::vector<CommSeries> measured = all_kinds({4, 1}, 1);
  const test::TempFolder folder;
  const std::string path = folder.write("own.yaml", hardware_lines(measured, options));
  const std::vector<Hardware> table = load_hardware({path, {}});
  const Hardware& cluster = *find_hardware(table, "cluster");
  for (const char* reductions : {"auto", "fixed", "fast"}) {
    for (const int zero : {0, 1, 3}) {
      const PlanSummary plan =
          plan_with(fmt::format("distribution:\n  device_mesh: {{shape: [4], axis_names: [data]}}\n"
                                "  zero: {}\n  reductions: {}\n",
                                zero, reductions),
                    cluster);
      REQUIRE(plan.collectives.size() >= 2);
      for (size_t i = 0; i < plan.collectives.size(); ++i) {
        CAPTURE(plan.collectives[i].kind);
        CAPTURE(reductions);
        const EstimatedCall& call = plan.estimate->calls[i];
        CHECK(call.algorithm == "as measured");
        CHECK(call.seconds == doctest::Approx(on_line(measured, plan.collectives[i],
                                                      std::string(reductions) != "fast"))
                                  .epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("sums in the switch count only where a run lets NCCL use them") {
  const Hardware& h200 = *find_hardware(known_hardware(), "H200");
  const auto planned = [&] {
    return *plan_with("distribution: {device_mesh: {shape: [8]}, reductions: fast}\n", h200)
                .estimate;
  };
  ::unsetenv(kNcclSwitch.name);
  CHECK(planned().hardware.switch_rate == 0);
  ::setenv(kNcclSwitch.name, "1", 1);
  CHECK(planned().hardware.switch_rate == h200.switch_rate);
  ::unsetenv(kNcclSwitch.name);
}

TEST_CASE("calls between hosts are written apart from those inside one") {
  CommOptions options;
  options.mesh = DeviceMesh({2, 4}, {"data", "model"});
  options.processes.group = std::make_shared<Placed>(8, 4);
  std::vector<CommSeries> measured = all_kinds({4, 1}, 1);
  const std::vector<CommSeries> across = all_kinds({2, 2}, 8);
  measured.insert(measured.end(), across.begin(), across.end());
  const std::vector<CommSeries> fewer = all_kinds({2, 1}, 3);  // not written
  measured.insert(measured.end(), fewer.begin(), fewer.end());
  const test::TempFolder folder;
  const std::string path = folder.write("own.yaml", hardware_lines(measured, options));
  const std::vector<Hardware> table = load_hardware({path, {}});
  const Hardware& cluster = *find_hardware(table, "cluster");
  CHECK(cluster.per_host == 4);
  const auto check = [&](const char* mesh, const std::vector<CommSeries>& series) {
    const PlanSummary plan =
        plan_with(fmt::format("distribution:\n  device_mesh: {{shape: {}, axis_names: [a, b]}}\n"
                              "  batch_dim_name: [a, b]\n",
                              mesh),
                  cluster);
    REQUIRE(!plan.collectives.empty());
    for (size_t i = 0; i < plan.collectives.size(); ++i) {
      CHECK(plan.estimate->calls[i].seconds ==
            doctest::Approx(on_line(series, plan.collectives[i], true)).epsilon(1e-4));
    }
  };
  check("[1, 4]", measured);
  check("[8, 1]", across);
  CHECK(cluster.network_calls.size() == call_names().size());
  CHECK(cluster.network_calls.at("all_to_all").start == doctest::Approx(56e-6));
}
