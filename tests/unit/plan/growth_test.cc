// How planning grows: with layers, not with devices. Processor times of one process, compared with
// each other; the bounds are far above what was measured (1.1 and 4.2).
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>

#include "engine/make_plan.h"
#include "plan/hardware.h"
#include "support/engine_case.h"

using namespace meshtrain;

namespace {

std::string model(int layers, int64_t data, int64_t model_devices) {
  std::string yaml = "model:\n  layers:\n    - Input: {shape: [4096]}\n";
  for (int i = 0; i < layers; ++i) {
    yaml += fmt::format("    - Dense: {{units: 4096, activation: relu, name: d{}}}\n", i);
  }
  return yaml + fmt::format(R"(compile: {{optimizer: adam, loss: mse}}
fit: {{batch_size: 4096}}
distribution:
  zero: 3
  device_mesh: {{shape: [{}, {}], axis_names: [data, model]}}
  layout_map: {{".*/kernel": [null, model], ".*/bias": [model]}}
)",
                            data, model_devices);
}

// From text to estimate, in milliseconds of the processor; the least of a few times.
double planning(const std::string& yaml) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const std::clock_t start = std::clock();
    const Config config = test::config_from(yaml);
    const Setup setup(config, nullptr);
    const PlanSummary plan = make_plan(setup, 0, true, find_hardware(known_hardware(), "H100"));
    CHECK(plan.estimate->step > 0);
    best = std::min(best, static_cast<double>(std::clock() - start) * 1000 / CLOCKS_PER_SEC);
  }
  return best;
}

}  // namespace

TEST_CASE("planning 4096 devices takes about as long as planning 8") {
  const double few = planning(model(30, 2, 4));
  for (const auto& [data, columns] : {std::pair<int64_t, int64_t>{64, 64}, {512, 8}}) {
    CAPTURE(data);
    CHECK(planning(model(30, data, columns)) <= 5 * few + 20);
  }
}

TEST_CASE("planning four times the layers takes about four times as long") {
  CHECK(planning(model(160, 64, 64)) <= 12 * planning(model(40, 64, 64)) + 20);
}
