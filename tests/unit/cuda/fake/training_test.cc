// Whole trainings on the CUDA library: single steps, many a launch, remainders, validation, and
// checkpoints, beside the processor.
#include "../../gpu/training.h"

#include <cmath>
#include <cstdlib>

#include "base/file.h"
#include "fake_gpu.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

constexpr const char* kModel = R"(
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {name: d1, units: 64, activation: relu}
    - Dropout: 0.2
    - Dense: {name: d2, units: 10}
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  optimizer: {Adam: {learning_rate: 0.002}}
  metrics: [accuracy]
fit: {batch_size: 8, validation_batch_size: 12}
seed: 3
)";

struct Results {
  std::vector<double> numbers;
  std::map<std::string, HostTensor> weights;
};

// A remainder and an evaluation behind as many steps, all in one launch or one by one; the weights
// then go to a new engine, which trains on.
Results results_of(const std::string& devices, bool step_by_step) {
  const Dataset data = pictures(48);
  const Config config = config_from(
      kModel, {"matmul_precision=highest",
               "distribution={type: DataParallel, device_mesh: {shape: [1], axis_names: [data], "
               "devices: '" +
                   devices + "'}}"});
  EngineOptions options;
  options.num_workers = 1;
  Results results;
  const auto rows = [](int64_t first, int64_t count) { return rows_of_step(first, count, 48); };
  {
    Engine engine(config, data_spec(data), options);
    std::vector<int64_t> next;
    int64_t step = 0;
    const auto batch = [&] {
      next = rows(step++, 8);
      return Batch{&data, next};
    };
    for (const int64_t count : {32, 32, 1}) {
      for (int64_t done = 0; done < count;) {
        const int64_t now = step_by_step ? 1 : std::min(count - done, engine.steps_at_once(8));
        engine.train_steps(now, batch);
        done += now;
      }
      results.numbers.push_back(engine.last_loss());
    }
    engine.train_step({&data, rows(3, 5)});
    results.numbers.push_back(engine.last_loss());
    engine.reset_metrics();
    engine.test_step({&data, rows(0, 12)});
    engine.test_step({&data, rows(1, 7)});
    for (const auto& [name, value] : engine.logs())
      results.numbers.push_back(value);
    for (const std::string& path : engine.weight_paths())
      results.weights.emplace(path, engine.read_variable(path));
  }
  Engine resumed(config, data_spec(data), options);
  for (const auto& [path, weight] : results.weights)
    resumed.write_variable(path, weight);
  resumed.train_step({&data, rows(2, 8)});
  results.numbers.push_back(resumed.last_loss());
  return results;
}

// Of the program, with the fakes in the folder of the loader; 0 also says that it did nothing wrong
// and left nothing.
int run_program(const TempFolder& folder, const std::string& words) {
  const std::string command =
      "cd '" + folder.path() +
      "' && LD_LIBRARY_PATH=" MESHTRAIN_FAKE_CUDA " MESHTRAIN_CUDA_PATH=" MESHTRAIN_FAKE_CUDA
      " MESHTRAIN_CACHE=cache MESHTRAIN_EMULATOR_GPUS=1 MESHTRAIN_EMULATOR_SEED=4 " MESHTRAIN_BINARY
      " " +
      words + " > log.txt 2>&1";
  return std::system(command.c_str());
}

TEST_CASE("a run resumed from its checkpoint has the weights of one that never stopped") {
  fake_runtime();
  const TempFolder folder;
  folder.write("dense.yaml", R"(
data:
  train: {source: random, samples: 70, shape: [64], classes: 10}
  validation: {source: random, samples: 30, shape: [64], classes: 10}
model:
  layers:
    - Input: {shape: [64]}
    - Dense: {units: 128, activation: relu}
    - Dropout: 0.2
    - Dense: {units: 10}
compile:
  optimizer: adam
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 32}
)");
  const std::string train = "train dense.yaml --devices gpu:0 ";
  CHECK(run_program(folder, train + "-o whole --epochs 3") == 0);
  CHECK(run_program(folder, train + "-o parts --epochs 2") == 0);
  CHECK(run_program(folder, train + "-o parts --epochs 3 --resume --no-cuda-graph") == 0);
  constexpr uint64_t kMost = uint64_t{1} << 20;
  const std::string weights = read_file(folder.file("whole/weights.safetensors"), kMost);
  const bool are_equal = read_file(folder.file("parts/weights.safetensors"), kMost) == weights;
  CHECK(are_equal);
}

TEST_CASE("train --profile measures the calls of a GPU and trains to the same weights") {
  fake_runtime();
  const TempFolder folder;
  folder.write("dense.yaml", R"(
data:
  train: {source: random, samples: 256, shape: [64], classes: 10}
model:
  layers:
    - Input: {shape: [64]}
    - Dense: {name: d1, units: 128, activation: relu}
    - Dense: {name: d2, units: 10}
compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 16}
)");
  const std::string train = "train dense.yaml --devices gpu:0 --epochs 2 ";
  REQUIRE(run_program(folder, train + "-o plain") == 0);
  REQUIRE(run_program(folder, train + "-o measured --profile 6") == 0);
  constexpr uint64_t kMost = uint64_t{1} << 22;
  const auto read = [&](const std::string& name) { return read_file(folder.file(name), kMost); };
  const bool are_equal = read("measured/weights.safetensors") == read("plain/weights.safetensors");
  CHECK(are_equal);
  const std::string profile = read("measured/profile/profile.json");
  for (const char* part : {"\"steps\": 6", "d1/", "\"kind\": \"einsum\"", "gpu_in_use"}) {
    CAPTURE(part);
    CHECK_MESSAGE(profile.find(part) != std::string::npos, profile);
  }
  CHECK(read("measured/profile/trace.json").find("\"name\":\"GPU\"") != std::string::npos);
}

TEST_CASE("a model trains on the CUDA library as on the processor in every order") {
  fake_runtime();
  set_order(0);
  const Results want = results_of("cpu", false);
  for (const bool step_by_step : {true, false}) {
    for (const uint64_t seed : {0, 3}) {
      CAPTURE(step_by_step);
      CAPTURE(seed);
      set_order(seed);
      const Results got = results_of("gpu:0", step_by_step);
      REQUIRE(got.numbers.size() == want.numbers.size());
      for (size_t i = 0; i < want.numbers.size(); ++i) {
        CAPTURE(i);
        CHECK(std::abs(got.numbers[i] - want.numbers[i]) <= 1e-4 * (1 + std::abs(want.numbers[i])));
      }
      check_clean();
    }
  }
  set_order(0);
}

}  // namespace
}  // namespace meshtrain::test
