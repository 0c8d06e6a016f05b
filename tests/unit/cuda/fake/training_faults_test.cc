// Calls of a whole training that fail, and allocations that find no memory: launches of many steps,
// a remainder, a validation, and the weights afterwards. The run ends with a message or with the
// right numbers, and leaves nothing.
#include <cmath>

#include "../../gpu/training.h"
#include "base/error.h"
#include "fake_gpu.h"
#include "support/sampled.h"

namespace meshtrain::test {
namespace {

using fake_cuda::Fault;

constexpr const char* kModel = R"(
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {name: d1, units: 16, activation: relu}
    - Dropout: 0.2
    - Dense: {name: d2, units: 10}
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  optimizer: adam
fit: {batch_size: 8, validation_batch_size: 12}
distribution:
  device_mesh: {shape: [1], axis_names: [data], devices: "gpu:0"}
)";
// Of the calls of a run: one in so many for each commit.
constexpr size_t kStride = 80;

struct Outcome {
  std::string message;          // "" for a run that came to its end
  std::vector<double> numbers;  // losses, and the sum of a weight
};

Outcome train_whole() {
  static const Dataset data = pictures(48);
  static const Config config = config_from(kModel, {"matmul_precision=highest"});
  EngineOptions options;
  options.num_workers = 1;
  Outcome outcome;
  try {
    Engine engine(config, data_spec(data), options);
    std::vector<int64_t> next;
    const int64_t most = engine.steps_at_once(8);
    for (int64_t step = 0; step < 35;) {
      const int64_t count = std::min<int64_t>(most, 35 - step);
      engine.train_steps(count, [&] {
        next = rows_of_step(step++, 8, 48);
        return Batch{&data, next};
      });
    }
    outcome.numbers.push_back(engine.last_loss());
    engine.train_step({&data, rows_of_step(3, 5, 48)});
    outcome.numbers.push_back(engine.last_loss());
    engine.reset_metrics();
    engine.test_step({&data, rows_of_step(0, 12, 48)});
    for (const auto& [name, value] : engine.logs())
      outcome.numbers.push_back(value);
    const HostTensor weight = engine.read_variable("d2/kernel");
    double sum = 0;
    for (int64_t i = 0; i < weight.size(); ++i)
      sum += weight.data<float>()[i];
    outcome.numbers.push_back(sum);
  } catch (const RuntimeFailure& failure) {
    CHECK(failure.exit_code() == ExitCode::kMesh);
    outcome.message = failure.what();
  }
  return outcome;
}

// A message of the design, or the numbers of a run in which nothing failed.
void check_outcome(const Outcome& outcome, const Outcome& right) {
  if (outcome.message.empty()) {
    CHECK(outcome.numbers == right.numbers);
  } else {
    CHECK_MESSAGE(outcome.message.rfind("gpu:0 (", 0) == 0, outcome.message);
    CHECK_MESSAGE((outcome.message.find(" failed: ") != std::string::npos ||
                   outcome.message.find("out of memory") != std::string::npos),
                  outcome.message);
  }
}

TEST_CASE("each call that fails in a training ends it with a message and leaves nothing") {
  fake_runtime();
  set_order(0);
  const Outcome right = train_whole();
  REQUIRE(right.message.empty());
  int64_t first = fake_cuda::num_calls();
  CHECK(train_whole().numbers == right.numbers);
  const auto calls = static_cast<size_t>(fake_cuda::num_calls() - first);
  CHECK(calls > 500);
  const std::string live = fake_cuda::live_objects();
  int ended = 0;
  for (const Fault fault : {Fault::kOnce, Fault::kSticky}) {
    for (const size_t i : sampled(calls, kStride)) {
      first = fake_cuda::num_calls() + static_cast<int64_t>(i);
      fake_cuda::fail_call(first, fault);
      const Outcome outcome = train_whole();
      const std::string name = fake_cuda::call_name(first);
      fake_cuda::clear_faults();
      CAPTURE(i);
      CAPTURE(name);
      CAPTURE(static_cast<int>(fault));
      check_outcome(outcome, right);
      check_clean(live);
      ended += outcome.message.empty() ? 0 : 1;
    }
  }
  CHECK(ended > 5);
}

TEST_CASE("each allocation of a training that finds no memory is reported and leaves nothing") {
  fake_runtime();
  set_order(0);
  const Outcome right = train_whole();
  REQUIRE(right.message.empty());
  const std::string live = fake_cuda::live_objects();
  fake_cuda::clear_faults();
  CHECK(train_whole().numbers == right.numbers);
  const int64_t allocations = fake_cuda::num_allocations();
  CHECK(allocations >= 5);
  int64_t reported = 0;
  for (int64_t i = 0; i < allocations; ++i) {
    fake_cuda::fail_allocation(i);
    const Outcome outcome = train_whole();
    fake_cuda::clear_faults();
    CAPTURE(i);
    check_outcome(outcome, right);
    check_clean(live);
    reported += outcome.message.find("out of memory") != std::string::npos ? 1 : 0;
  }
  CHECK(reported > allocations / 2);
}

}  // namespace
}  // namespace meshtrain::test
