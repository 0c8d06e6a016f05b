// What is computed row by row, as it trains.
#include <doctest/doctest.h>

#include "decoder.h"
#include "gpu_device.h"

namespace meshtrain::test {
namespace {

std::vector<double> losses(const std::vector<std::string>& overrides) {
  EngineOptions options;
  options.num_workers = 2;
  const Dataset data = sentences(32);
  const Config config = config_from(kDecoder, overrides);
  Engine engine(config, data_spec(data), options);
  std::vector<double> out;
  for (int64_t step = 0; step < 4; ++step) {
    const std::vector<int64_t> rows = rows_of_step(step, 8, data.num_samples);
    engine.train_step({&data, rows});
    out.push_back(engine.last_loss());
  }
  return out;
}

TEST_CASE("what is computed row by row trains as on the CPU") {
  if (test_runtime() == nullptr)
    return;
  struct Policy {
    const char* name;
    double tolerance;
  };
  for (const Policy& policy :
       {Policy{"float64", 1e-9}, Policy{"float32", 1e-4}, Policy{"mixed_bfloat16", 2e-2}}) {
    CAPTURE(policy.name);
    const auto on = [&](const char* devices, int count) {
      return losses({"seed=5", "matmul_precision=highest", "fit.batch_size=8",
                     std::string("dtype_policy=") + policy.name,
                     fmt::format("distribution={{type: DataParallel, device_mesh: {{shape: [{}], "
                                 "axis_names: [data], devices: {}}}}}",
                                 count, devices)});
    };
    set_emulator_seed(2);
    const std::vector<double> cpu = on("cpu", 1), one = on("gpu:0", 1), eight = on("gpu:0x8", 8);
    for (size_t i = 0; i < cpu.size(); ++i) {
      CHECK(one[i] == doctest::Approx(cpu[i]).epsilon(policy.tolerance));
      CHECK(eight[i] == doctest::Approx(cpu[i]).epsilon(policy.tolerance));
    }
    CHECK(cpu.back() != cpu.front());
  }
}

}  // namespace
}  // namespace meshtrain::test
