// Whole programs on the device against the processor: random graphs and models in float64, the
// guides' models as they train.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "gpu_device.h"
#include "ir/builder.h"
#include "support/convnet.h"
#include "support/random_models.h"
#include "support/random_steps.h"
#include "support/sampled.h"
#include "training.h"

namespace meshtrain::test {
namespace {

using meshtrain::testing::compare_tensors;
using meshtrain::testing::Layout;
using meshtrain::testing::LayoutCase;
using meshtrain::testing::Random;
using meshtrain::testing::random_layout;
using meshtrain::testing::run_layout;

// How far the cases that run are apart.
size_t stride() {
  return is_slow() ? 8 : 4;
}

void check_case(const LayoutCase& step, Random& random, uint64_t seed, bool read_all) {
  const Layout layout = random_layout(random, step);
  set_emulator_seed(seed);
  compare_tensors(run_layout(step, layout, seed, read_all, {.device = open_test_device()}),
                  run_layout(step, layout, seed, read_all));
}

TEST_CASE("random graphs have the CPU's tensors on the GPU") {
  if (test_runtime() == nullptr)
    return;
  for (const size_t seed : sampled_seeds(16, stride())) {
    CAPTURE(seed);
    Random random(seed * 7919 + 5);
    check_case(random_graph_step(random), random, seed, seed % 3 != 0);
  }
}

TEST_CASE("random models have the CPU's tensors on the GPU") {
  if (test_runtime() == nullptr)
    return;
  for (const size_t seed : sampled_seeds(16, stride())) {
    CAPTURE(seed);
    Random random(seed * 104729 + 11);
    const meshtrain::testing::LayerStep model = random_layer_step(random);
    CAPTURE(model.yaml);
    check_case(model.step, random, seed, seed % 3 != 0);
  }
}

TEST_CASE("an output that is an input comes back from the GPU") {
  if (test_runtime() == nullptr)
    return;
  for (const int64_t rows : {8, 20'000}) {  // in a slot, and where the arena is read
    CAPTURE(rows);
    Graph graph;
    Builder b(graph);
    const ValueId x = b.input("x", {rows, 2}, DType::kFloat64, true);
    b.output("x", x);
    b.output("negative", b.neg(x));
    HostTensor value(DType::kFloat64, {rows, 2});
    for (int64_t i = 0; i < value.size(); ++i) {
      value.set(i, static_cast<double>(i + 1));
    }
    meshtrain::testing::Tensors inputs;
    inputs["x"] = value.clone();
    meshtrain::testing::Layout layout;
    layout.mesh = DeviceMesh({2}, {"data"});
    layout.batch_axes = {0};
    meshtrain::testing::ProgramRunner runner({}, layout, {.device = open_test_device()});
    const auto outputs = runner.run(runner.add(std::move(graph)), inputs);
    for (int64_t i = 0; i < value.size(); i += 7) {
      CHECK(outputs.at("x").at(i) == value.at(i));
      CHECK(outputs.at("negative").at(i) == -value.at(i));
    }
  }
}

constexpr const char* kMlp = R"(
name: mlp
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {name: d1, units: 200, use_bias: false, activation: relu}
    - Dropout: {name: drop, rate: 0.3}
    - Dense: {name: d2, units: 10, activation: softmax}
compile: {loss: SparseCategoricalCrossentropy, metrics: [accuracy]}
fit: {batch_size: 16}
)";

constexpr const char* kSplitMlp = R"(
distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 4], axis_names: [data, model]}
  layout_map:
    d1/kernel: [null, model]
    d2/output: [data, null]
)";

constexpr const char* kMirrored = R"(
name: mirrored
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16}
)";

constexpr const char* kDataParallel = R"(
distribution: {type: DataParallel, device_mesh: {shape: [8], axis_names: [data]}}
)";

constexpr const char* kOneDevice = R"(
distribution: {type: DataParallel, device_mesh: {shape: [1], axis_names: [data]}}
)";

void check_close(const Training& got, const Training& want, double tolerance) {
  REQUIRE(got.losses.size() == want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    CAPTURE(i);
    const double off = std::abs(got.losses[i] - want.losses[i]);
    CHECK_MESSAGE(off <= tolerance * (1 + std::abs(want.losses[i])), got.losses[i], " for ",
                  want.losses[i]);
  }
  if (want.losses.size() >= 20)
    CHECK(want.losses.back() < want.losses.front());
}

struct Guide {
  const char* name;
  const char* yaml;
  const char* layout;
  int64_t steps;
};
const Guide kGuides[] = {{"mlp", kMlp, kSplitMlp, 20},
                         {"mirrored", kMirrored, kDataParallel, 20},
                         {"convnet", kConvnet, kSplitChannels, 20}};

TEST_CASE("the guides' models learn on the GPU what they learn on the CPU") {
  if (test_runtime() == nullptr)
    return;
  const Dataset data = pictures(80);
  for (const Guide& guide : kGuides) {
    CAPTURE(guide.name);
    const int64_t steps = is_slow() ? 3 : guide.steps;
    const std::vector<std::string> common = {"fit.batch_size=8", "seed=7"};
    const auto with = [&](const char* device, std::vector<std::string> more = {}) {
      more.insert(more.end(), common.begin(), common.end());
      more.push_back(std::string("distribution.device_mesh.devices=") + device);
      return more;
    };
    const std::string one = std::string(guide.yaml) + kOneDevice;
    set_emulator_seed(3);
    const Training cpu = train(one, with("cpu"), data, steps);
    check_close(train(one, with("gpu:0"), data, steps), cpu, 1e-4);
    const Training eight =
        train(std::string(guide.yaml) + guide.layout, with("gpu:0x8"), data, steps, true);
    check_close(eight, cpu, 1e-4);
    REQUIRE(eight.logs.size() == cpu.logs.size());
    for (size_t i = 0; i < cpu.logs.size(); ++i)
      CHECK(eight.logs[i].second == doctest::Approx(cpu.logs[i].second).epsilon(1e-4));
    const std::vector<std::string> wide = {"dtype_policy=float64"};
    const int64_t few = std::min<int64_t>(steps, 5);
    check_close(train(std::string(guide.yaml) + guide.layout, with("gpu:0x8", wide), data, few),
                train(one, with("cpu", wide), data, few), 1e-9);
  }
}

// Two heads of keys, which `megatron` leaves whole, and four of queries, one a device: kernels of
// keys and values are gathered head by head, and their gradients added by head.
constexpr const char* kFewKeyHeads = R"(
name: few_key_heads
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Reshape: {name: rows, target_shape: [28, 28]}
    - GroupQueryAttention: {name: attention, inputs: [rows, rows], head_dim: 4, num_query_heads: 4,
        num_key_value_heads: 2}
    - Flatten
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-2}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 8}
)";

TEST_CASE("heads of keys that devices share train on the GPU as on one CPU") {
  if (test_runtime() == nullptr)
    return;
  const Dataset data = pictures(40);
  const auto on = [&](const char* distribution) {
    return train(kFewKeyHeads,
                 {"seed=7", "dtype_policy=float64", std::string("distribution=") + distribution},
                 data, 4);
  };
  set_emulator_seed(6);
  const Training split =
      on("{type: ModelParallel, device_mesh: {shape: [1, 4], axis_names: [data, model], "
         "devices: gpu:0x4}, layout_map: megatron}");
  const Training cpu =
      on("{type: DataParallel, device_mesh: {shape: [1], axis_names: [data], devices: cpu}}");
  check_close(split, cpu, 1e-9);
  CHECK(split.losses.back() < split.losses.front());
}

TEST_CASE("mixed precision has the CPU's losses on the GPU") {
  if (test_runtime() == nullptr)
    return;
  const Dataset data = pictures(40);
  struct Policy {
    const char* name;
    double tolerance;  // some steps of rounding: 2^-8 and 2^-11 of a number each
  };
  for (const Policy& policy : {Policy{"mixed_bfloat16", 2e-2}, Policy{"mixed_float16", 3e-3}}) {
    for (const Guide& guide : {kGuides[0], kGuides[2]}) {
      CAPTURE(policy.name);
      CAPTURE(guide.name);
      const auto on = [&](const char* devices) {
        return train(std::string(guide.yaml) + guide.layout,
                     {"seed=7", "fit.batch_size=8", std::string("dtype_policy=") + policy.name,
                      std::string("distribution.device_mesh.devices=") + devices},
                     data, is_slow() ? 2 : 6);
      };
      set_emulator_seed(4);
      check_close(on("gpu:0x8"), on("cpu:8"), policy.tolerance);
    }
  }
}

TEST_CASE("repeats on the GPU end with one hash in whatever order it computes") {
  if (test_runtime() == nullptr)
    return;
  const Dataset data = pictures(32);
  std::set<uint64_t> hashes;
  for (const size_t i : sampled(20, 5)) {
    const uint64_t seed = i + 1;
    set_emulator_seed(seed);
    hashes.insert(train(std::string(kMlp) + kSplitMlp,
                        {"distribution.device_mesh.devices=gpu:0x8", "fit.batch_size=8"}, data, 4,
                        seed % 2 == 0)
                      .hash);
  }
  CHECK(hashes.size() == 1);
}

}  // namespace
}  // namespace meshtrain::test
