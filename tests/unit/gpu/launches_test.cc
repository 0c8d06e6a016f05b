// What is launched in a step of a guide's model, in numbers.
#include <doctest/doctest.h>

#include "backend/gpu/epilogue.h"
#include "backend/gpu/merge_launches.h"
#include "engine/setup.h"
#include "support/engine_case.h"
#include "support/gpu_commands.h"

namespace meshtrain::test {
namespace {

struct Counts {
  int products = 0, with_epilogue = 0;
  int calls = 0;     // products and kernels
  int commands = 0;  // before equal and tiny ones were joined
};

Counts counts_of(const std::vector<gpu::Command>& commands) {
  Counts out;
  out.commands = static_cast<int>(commands.size());
  out.calls = static_cast<int>(gpu::merge_launches(commands).calls.size());
  for (const gpu::Command& command : commands) {
    if (const auto* matmul = std::get_if<gpu::Matmul>(&command.what)) {
      ++out.products;
      out.with_epilogue += matmul->epilogue.has_value();
    }
  }
  return out;
}

// Of a step on one device; `fuses`: as it is, or as if no product had an epilogue.
Counts launched(const std::string& yaml, StepKind kind, int64_t batch, bool fuses) {
  const Config config =
      config_from(yaml, {"distribution={type: DataParallel, device_mesh: {shape: [1], axis_names: "
                         "[data], devices: cpu}}"});
  const Setup setup(config, nullptr);
  const Program program = setup.compile(kind, batch).program;
  return counts_of(
      gpu::with_parts(gpu_commands(program), [&](const gpu::Command&) { return fuses; }));
}

constexpr const char* kMlpA = R"(
name: a
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {name: d1, units: 200, use_bias: false, activation: relu}
    - Dropout: {name: drop, rate: 0.4}
    - Dense: {name: d2, units: 10, activation: softmax}
compile: {loss: SparseCategoricalCrossentropy, optimizer: rmsprop, metrics: [accuracy]}
fit: {batch_size: 16}
)";

constexpr const char* kMlpB = R"(
name: b
model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 256, activation: ACTIVATION}
    - Dense: {units: 256, activation: ACTIVATION}
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 64}
)";

std::string mlp_b(const std::string& activation) {
  std::string text = kMlpB;
  for (size_t i = 0; (i = text.find("ACTIVATION")) != std::string::npos;)
    text.replace(i, 10, activation);
  return text;
}

struct Expected {
  int commands, calls, products, with_epilogue;
};

void check(const Counts& counts, const Expected& expected) {
  CHECK(counts.commands == expected.commands);
  CHECK(counts.calls == expected.calls);
  CHECK(counts.products == expected.products);
  CHECK(counts.with_epilogue == expected.with_epilogue);
}

// The relu of the first is a tiny launch, which costs nothing beside its dropout.
TEST_CASE("products with epilogues save launches of the guides' dense layers") {
  check(launched(kMlpA, StepKind::kTrain, 16, false), {45, 11, 2, 0});
  check(launched(kMlpA, StepKind::kTrain, 16, true), {44, 11, 2, 1});
  check(launched(mlp_b("relu"), StepKind::kTrain, 64, false), {51, 17, 8, 0});
  check(launched(mlp_b("relu"), StepKind::kTrain, 64, true), {48, 15, 8, 3});
}

TEST_CASE("gelu is part of a product where nothing needs what it is of") {
  const auto with = [](const char* activation, StepKind kind) {
    return launched(mlp_b(activation), kind, 64, true).with_epilogue;
  };
  constexpr const char* kTanh = "{gelu: {approximate: true}}";
  CHECK(with(kTanh, StepKind::kTest) == 3);
  CHECK(with("gelu", StepKind::kTest) == 1);  // the last layer, which has none
  // Its gradient needs the sum.
  CHECK(with(kTanh, StepKind::kTrain) == 1);
}

}  // namespace
}  // namespace meshtrain::test
