// How long a deep model takes from YAML text to its Program: config, model, graph with gradients,
// each pass, the plan. Every row is the least of --rounds runs in one process, in milliseconds of
// processor time.
//
//   bench_passes [--layers N] [--rounds N]
//
//   dense      N Dense layers of 16 units, Adam, one device
//   dense2x4   the same on a mesh of 2 x 4, kernels and biases over `model`, batch over `data`
//   guide4096  the Keras guide's model planned on 64 x 64 and 16 x 16 x 16 devices
//
// Each of the dense models is measured with N / 10, N / 2 and N layers: what grows faster than the
// layers shows in the last column, time per layer against that of the smallest.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "engine/make_plan.h"
#include "support/engine_case.h"

namespace meshtrain::test {
namespace {

using Times = std::vector<std::pair<std::string, double>>;  // milliseconds, in order

// Processor time, so that a busy machine disturbs little.
class Stopwatch {
 public:
  double lap() {
    const std::clock_t now = std::clock();
    const double out = static_cast<double>(now - start_) * 1000 / CLOCKS_PER_SEC;
    start_ = now;
    return out;
  }

 private:
  std::clock_t start_ = std::clock();
};

std::string dense_model(int layers, bool mesh) {
  std::string yaml = "model:\n  layers:\n    - Input: {shape: [16]}\n";
  for (int i = 0; i < layers; ++i) {
    yaml += fmt::format("    - Dense: {{units: 16, activation: relu, name: d{}}}\n", i);
  }
  yaml += "compile: {optimizer: adam, loss: mse}\nfit: {batch_size: 64}\n";
  if (mesh) {
    yaml += R"(distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 4], axis_names: [data, model]}
  layout_map:
    ".*/kernel": [null, model]
    ".*/bias": [model]
)";
  }
  return yaml;
}

std::string guide_model(const std::string& shape, const std::string& axes) {
  return fmt::format(R"(model:
  layers:
    - Input: {{shape: [28, 28, 1]}}
    - Flatten
    - Dense: {{units: 4096, activation: relu, name: d1}}
    - Dropout: 0.4
    - Dense: {{units: 4096, activation: softmax, name: d2}}
compile: {{optimizer: rmsprop, loss: mse}}
fit: {{batch_size: 4096}}
distribution:
  type: ModelParallel
  device_mesh: {{shape: {}, axis_names: {}}}
  layout_map: {{d1/kernel: [null, model], d1/bias: [model], d2/kernel: [model, null]}}
)",
                     shape, axes);
}

// One run over everything, a row per stage.
Times measure_once(const std::string& yaml) {
  Times times;
  Stopwatch watch;
  const Config config = config_from(yaml);
  times.emplace_back("config", watch.lap());
  const Setup setup(config, nullptr);
  times.emplace_back("model and layouts", watch.lap());
  const int64_t batch = config.fit.batch_size.value;
  { const Graph graph = setup.global_graph(StepKind::kTrain, batch); }
  const double building = watch.lap();
  times.emplace_back("graph and gradients", building);
  const Compiled compiled = setup.compile(StepKind::kTrain, batch);
  double compiling = watch.lap() - building;
  for (const PassTime& pass : compiled.times) {
    times.emplace_back(pass.name, pass.milliseconds);
    compiling -= pass.milliseconds;
  }
  times.emplace_back("between passes", std::max(compiling, 0.0));
  const PlanSummary report = make_plan(setup);
  const double planning = watch.lap();
  double before = building;
  for (const PassTime& pass : compiled.times) {
    before += pass.milliseconds;
  }
  times.emplace_back("report", std::max(planning - before, 0.0));
  return times;
}

Times measure(const std::string& yaml, int rounds) {
  Times best;
  for (int r = 0; r < rounds; ++r) {
    const Times times = measure_once(yaml);
    for (size_t i = 0; i < times.size(); ++i) {
      if (r == 0) {
        best.push_back(times[i]);
      }
      best[i].second = std::min(best[i].second, times[i].second);
    }
  }
  double total = 0;
  for (const auto& row : best) {
    total += row.second;
  }
  best.emplace_back("total", total);
  return best;
}

void print_table(const std::string& name, const std::vector<std::string>& columns,
                 const std::vector<Times>& results, const std::vector<double>& per) {
  fmt::print("\n{:<22}", name);
  for (const std::string& column : columns) {
    fmt::print("{:>12}", column);
  }
  fmt::print("{}\n", per.empty() ? "" : "      growth");
  for (size_t row = 0; row < results[0].size(); ++row) {
    fmt::print("{:<22}", results[0][row].first);
    for (const Times& times : results) {
      fmt::print("{:>12.2f}", times[row].second);
    }
    if (!per.empty()) {
      const double first = results.front()[row].second / per.front();
      fmt::print("{:>12.2f}", results.back()[row].second / per.back() / std::max(first, 1e-6));
    }
    fmt::print("\n");
  }
  std::fflush(stdout);
}

void run(int layers, int rounds) {
  for (const bool mesh : {false, true}) {
    std::vector<std::string> columns;
    std::vector<Times> results;
    std::vector<double> per;
    for (const int count : {layers / 10, layers / 2, layers}) {
      columns.push_back(fmt::format("{}", count));
      per.push_back(count);
      results.push_back(measure(dense_model(count, mesh), rounds));
    }
    print_table(mesh ? "dense2x4, ms" : "dense, ms", columns, results, per);
  }
  print_table("guide4096, ms", {"64x64", "16x16x16"},
              {measure(guide_model("[64, 64]", "[batch, model]"), rounds),
               measure(guide_model("[16, 16, 16]", "[batch, model, other]"), rounds)},
              {});
}

}  // namespace
}  // namespace meshtrain::test

int main(int argc, char** argv) {
  int layers = 1000;
  int rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    int& value = std::strcmp(argv[i], "--layers") == 0 ? layers : rounds;
    value = std::max(1, std::stoi(argv[i + 1]));
  }
  meshtrain::test::run(std::max(layers, 10), rounds);
  return 0;
}
