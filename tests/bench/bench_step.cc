// meshtrain's side of the step benchmark. Reads "run WORKLOAD STEPS" lines and answers
// "US <median microseconds a step>", as torch_mlp.py does: ten equal chunks, the median chunk.
//
//   a16 a64 a512   784-200-10, dropout 0.4, softmax, mse, RMSprop, batch 16, 64, 512
//   b64            784-256-256-10, cross-entropy from logits, Adam, batch 64
//   c64            the convnet of Keras' guide to distributed training with JAX, Adam, batch 64
//   b64v8          the same on eight virtual devices (v1, v2, v4 likewise); two without a suffix
//   b64:mixed_bfloat16   with this dtype_policy
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "support/convnet.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

constexpr int kChunks = 10;
constexpr int64_t kBatches = 8;  // distinct batches that the loop cycles through

constexpr const char* kA = R"(
distribution: {device_mesh: {shape: [2], axis_names: [data]}}
model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 200, use_bias: false, activation: relu}
    - Dropout: 0.4
    - Dense: {units: 10, activation: softmax}
compile: {loss: mse, optimizer: rmsprop}
)";

constexpr const char* kB = R"(
distribution: {device_mesh: {shape: [2], axis_names: [data]}}
model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
)";

const std::string kC =
    std::string("distribution: {device_mesh: {shape: [2], axis_names: [data]}}\n") + kConvnet;

struct Workload {
  std::unique_ptr<Config> config;  // outlives the engine
  Dataset data;
  std::unique_ptr<Engine> engine;
  std::vector<std::vector<int64_t>> rows;
  int64_t steps = 0;

  void step() { engine->train_step({&data, rows[static_cast<size_t>(steps++ % kBatches)]}); }
};

Workload make(const std::string& name_and_policy) {
  const size_t colon = name_and_policy.find(':');
  const std::string name = name_and_policy.substr(0, colon);
  const std::string policy =
      colon == std::string::npos ? "float32" : name_and_policy.substr(colon + 1);
  const size_t v = name.find('v');
  const int64_t batch = std::stoll(name.substr(1, v - 1));
  const std::string devices = v == std::string::npos ? "2" : name.substr(v + 1);
  const bool is_a = name[0] == 'a', is_c = name[0] == 'c';
  Workload out;
  out.config = std::make_unique<Config>(
      config_from(is_a   ? kA
                  : is_c ? kC
                         : kB,
                  {fmt::format("fit.batch_size={}", batch), "dtype_policy=" + policy,
                   fmt::format("distribution.device_mesh.shape=[{}]", devices)}));
  HostTensor x(DType::kFloat32,
               is_c ? Shape{kBatches * batch, 28, 28, 1} : Shape{kBatches * batch, 784});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = (is_c ? 255.0F : 1.0F) * splitmix_unit(1, static_cast<uint64_t>(i));
  }
  HostTensor y = is_a ? HostTensor(DType::kFloat32, {kBatches * batch, 10})
                      : HostTensor(DType::kInt32, {kBatches * batch});
  for (int64_t s = 0; s < kBatches * batch; ++s) {
    const int64_t label = splitmix_below(2, static_cast<uint64_t>(s), 10);
    y.set(is_a ? s * 10 + label : s, is_a ? 1.0 : static_cast<double>(label));
  }
  out.data = dataset_of(std::move(x), std::move(y));
  out.engine = std::make_unique<Engine>(*out.config, data_spec(out.data));
  for (int64_t b = 0; b < kBatches; ++b) {
    out.rows.push_back(rows_of_step(b, batch, kBatches * batch));
  }
  for (int i = 0; i < 5; ++i) {
    out.step();
  }
  return out;
}

double median_us(Workload& workload, int steps) {
  const int chunk = std::max(1, steps / kChunks);
  std::vector<double> times;
  for (int c = 0; c < kChunks; ++c) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < chunk; ++i) {
      workload.step();
    }
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    times.push_back(taken.count() / chunk);
  }
  std::nth_element(times.begin(), times.begin() + kChunks / 2, times.end());
  return times[kChunks / 2];
}

int serve() {
  std::map<std::string, Workload> workloads;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command, name;
    int steps = 0;
    if (!(words >> command >> name >> steps) || command != "run") {
      fmt::print(stderr, "expected: run WORKLOAD STEPS, read: {}\n", line);
      return 2;
    }
    if (!workloads.contains(name)) {
      workloads.emplace(name, make(name));
    }
    fmt::print("US {:.3f}\n", median_us(workloads.at(name), steps));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace meshtrain::test

int main() {
  try {
    return meshtrain::test::serve();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
