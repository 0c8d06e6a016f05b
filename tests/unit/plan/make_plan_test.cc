// What a plan says of devices on paper: how much is started there, and what to do where a device
// has too little memory.
#include "engine/make_plan.h"

#include <doctest/doctest.h>

#include "base/utf8.h"
#include "exec/gpu_memory.h"
#include "passes/row_fusion.h"
#include "plan/hardware.h"
#include "support/engine_case.h"

using namespace meshtrain;

namespace {

constexpr const char* kModel = R"(
model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 10}
compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 64}
)";

Hardware h100(int64_t memory = int64_t{80} << 30) {
  Hardware out = *find_hardware(known_hardware(), "H100");
  out.memory = memory;
  return out;
}

PlanSummary plan_on(int64_t devices, const std::string& distribution, const Hardware& hardware,
                    const std::string& model = kModel) {
  const Config config =
      test::config_from(model + fmt::format("distribution: {{device_mesh: {{shape: [{}]}}, {}}}\n",
                                            devices, distribution));
  const Setup setup(config, nullptr);
  return make_plan(setup, 0, true, &hardware);
}

std::string notes_of(const PlanSummary& plan) {
  return fmt::format("{}", fmt::join(plan.estimate->notes, "\n"));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("kernels of a plan are what a GPU starts and not the program's steps") {
  const Config config =
      test::config_from(std::string(kModel) + "distribution: {device_mesh: {shape: [1]}}\n");
  const Setup setup(config, nullptr);
  Program program = setup.compile(StepKind::kTrain, 64).program;
  const int64_t steps = static_cast<int64_t>(program.steps.size());
  fuse_rows(program, RowTarget::kGpu);
  const int64_t launches = gpu_launches(program);
  CHECK(launches < steps / 2);
  const Hardware hardware = h100();
  const Estimate one = *make_plan(setup, 0, true, &hardware).estimate;
  CHECK(one.kernels == launches);
  CHECK(one.launch == doctest::Approx(static_cast<double>(launches) * hardware.kernel));
  // Eight devices with as much each start as much, beside their collectives.
  std::string larger = kModel;
  larger.replace(larger.find("batch_size: 64"), 14, "batch_size: 512");
  const Estimate eight = *plan_on(8, "reductions: fast", hardware, larger).estimate;
  CHECK(std::abs(eight.kernels - launches) <= 2);
  // A processor calls a function for each step.
  const Hardware cpu = *find_hardware(known_hardware(), "cpu");
  CHECK(make_plan(setup, 0, true, &cpu).estimate->kernels == steps);
}

TEST_CASE("a plan of a large batch does not prepare all of it") {
  const auto kernels = [](int64_t batch) {
    const std::string model = fmt::format(
        "model: {{layers: [{{Input: {{shape: [16, 16, 3]}}}}, {{Conv2D: {{filters: 8, kernel_size: "
        "3}}}}, Flatten, {{Dense: {{units: 10}}}}]}}\n"
        "compile: {{optimizer: adam, loss: {{SparseCategoricalCrossentropy: {{from_logits: "
        "true}}}}}}\nfit: {{batch_size: {}}}\n",
        batch);
    return plan_on(1, "reductions: fast", h100(), model).estimate->kernels;
  };
  CHECK(std::abs(kernels(int64_t{1} << 30) - kernels(8192)) <= 2);
}

TEST_CASE("one device is not compared where it cannot hold the model") {
  const PlanSummary roomy = plan_on(8, "zero: 3", h100());
  CHECK(roomy.estimate->one_device.has_value());
  CHECK(contains(notes_of(roomy), "one device takes"));
  const PlanSummary tight = plan_on(8, "zero: 3", h100(roomy.memory.total()));
  CHECK(tight.estimate->fits);
  CHECK_FALSE(tight.estimate->one_device.has_value());
  CHECK_FALSE(contains(notes_of(tight), "one device takes"));
}

TEST_CASE("what is advised where memory is too small has been tried and fits") {
  const Hardware any = h100();
  const int64_t zero1 = plan_on(8, "zero: 1", any).memory.total();
  REQUIRE(zero1 < plan_on(8, "zero: 0", any).memory.total());
  const std::string of_zero = notes_of(plan_on(8, "zero: 0", h100(zero1)));
  CHECK_MESSAGE(contains(of_zero, ": `distribution.zero: 1` fits"), of_zero);

  std::string large = kModel, half = kModel;
  large.replace(large.find("batch_size: 64"), 14, "batch_size: 65536");
  half.replace(half.find("batch_size: 64"), 14, "batch_size: 32768");
  const int64_t halved = plan_on(8, "zero: 0", any, half).memory.total();
  REQUIRE(halved < plan_on(8, "zero: 3", any, large).memory.total());
  const std::string of_batch = notes_of(plan_on(8, "zero: 0", h100(halved), large));
  CHECK_MESSAGE(contains(of_batch, ": `batch_size: 32768` fits"), of_batch);

  const std::string none = notes_of(plan_on(8, "zero: 0", h100(1000)));
  CHECK_MESSAGE(contains(none, "no `zero` and no batch fits"), none);
}

TEST_CASE("a plan's MFU counts products alone") {
  const PlanSummary plan = plan_on(1, "zero: 0", h100());
  // Forward and gradients of kernels; gradients of the inputs of all but the first.
  const double flops = 2.0 * 64 * (784 * 256 * 2 + 256 * 256 * 3 + 256 * 10 * 3);
  CHECK(plan.estimate->flops == flops);
  CHECK(plan.flops > flops);
  CHECK(plan.estimate->mfu ==
        doctest::Approx(flops / plan.estimate->step /
                        plan.estimate->hardware.peak[static_cast<size_t>(MatmulType::kTf32)]));
}

TEST_CASE("a plan's MFU leaves out what remat computes again") {
  const auto mfu_seconds = [](const std::string& remat) {
    std::string model = kModel;
    model.insert(model.find("    - Dense: {units: 10}"),
                 "    - Repeat: {times: 2, name: 'r_{i}', remat: " + remat + R"(, layers: [
        {Dense: {name: up, units: 512, activation: gelu}}, {Dense: {name: down, units: 256}}]}
)");
    const PlanSummary plan = plan_on(1, "zero: 0", h100(), model);
    return plan.estimate->mfu * plan.estimate->step;
  };
  CHECK(mfu_seconds("block") == doctest::Approx(mfu_seconds("none")));
}

TEST_CASE("the plan's text has whole characters") {
  for (const char* more : {"", "x", "xx"}) {
    std::string name = more;
    for (int i = 0; i < 20; ++i) {
      name += "层";
    }
    const PlanSummary plan = plan_on(2, "zero: 0", h100(),
                                     fmt::format("model:\n  layers:\n    - Input: {{shape: [4]}}\n"
                                                 "    - Dense: {{units: 2, name: {}}}\n"
                                                 "compile: {{loss: mse}}\nfit: {{batch_size: 4}}\n",
                                                 name));
    const std::string text = plan_text(plan);
    CHECK(contains(text, "..."));
    for (size_t i = 0; i < text.size();) {
      const size_t length = utf8_length(text, i);
      REQUIRE(length > 0);
      i += length;
    }
  }
}
