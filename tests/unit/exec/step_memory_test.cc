// Memory that programs take turns in.
#include "exec/step_memory.h"

#include <doctest/doctest.h>

#include "exec/executor.h"
#include "exec/gpu_memory.h"
#include "one_step.h"

namespace meshtrain::testing {
namespace {

using Sizes = std::vector<int64_t>;

TEST_CASE("each program gets the smallest block that is large enough") {
  StepMemory memory = imagined_step_memory();
  StepMemory::Share first(memory);
  std::byte* const large = first.take(5000);
  std::byte* const small = first.take(300);
  std::byte* const other = first.take(300);
  CHECK(small != other);
  CHECK(memory.block_bytes() == Sizes{5120, 512, 512});
  StepMemory::Share second(memory);
  CHECK(second.take(200) == small);
  CHECK(second.take(512) == other);
  CHECK(second.take(512) == large);
  CHECK(second.take(1) != nullptr);
  CHECK(memory.block_bytes() == Sizes{5120, 512, 512, 256});
  StepMemory::Share third(memory);
  CHECK(third.take(6000) != large);
  CHECK(memory.block_bytes().back() == 6144);
}

TEST_CASE(
    "a copy of a share takes nothing that was taken before and may take what the other does") {
  StepMemory memory = imagined_step_memory();
  StepMemory::Share share(memory);
  std::byte* const arena = share.take(1024);
  StepMemory::Share one = share, two = share;
  std::byte* const scratch = one.take(1024);
  CHECK(scratch != arena);
  CHECK(two.take(1024) == scratch);
  CHECK(memory.block_bytes() == Sizes{1024, 1024});
}

TEST_CASE("memory is extended to what was planned") {
  StepMemory planned = imagined_step_memory(), memory = imagined_step_memory();
  StepMemory::Share(memory).take(700);
  planned.extend(memory.block_bytes());
  StepMemory::Share share(planned);
  share.take(100);
  share.take(100);
  memory.extend(planned.block_bytes());
  CHECK(memory.block_bytes() == Sizes{768, 256});
}

// y = x + 3, where the 3 is made once.
Program add_three(int64_t elements) {
  ProgramBuilder builder(DeviceMesh{});
  const Sharding whole = Sharding::replicated(1);
  const int x = builder.input({elements}, DType::kFloat32, whole);
  const int three = builder.buffer({elements}, DType::kFloat32, whole);
  const int y = builder.buffer({elements}, DType::kFloat32, whole);
  builder.step("constant", {}, {three}, {{"value", 3.0}});
  builder.step("add", {x, three}, {y});
  builder.output(y);
  return builder.take();
}

TEST_CASE("programs of a store take turns in one arena and keep constants and small results") {
  VariableStore store(DeviceMesh{}, {});
  const auto workers = make_worker_pool(2);
  constexpr int64_t kLarge = 40000, kSmall = 500;
  Executor large(add_three(kLarge), workers, store), small(add_three(kSmall), workers, store);
  CHECK(store.step_memory().block_bytes().size() == 1);
  const auto run = [](Executor& executor, int64_t elements, float x) {
    const std::vector<float> values(static_cast<size_t>(elements), x);
    executor.set_input(0, values.data(), values.size() * sizeof(float));
    executor.run();
  };
  for (const float x : {1.0F, 2.0F}) {
    run(small, kSmall, x);
    run(large, kLarge, 10 * x);
    const HostTensor result = large.output(0), before = small.output(0);
    for (int64_t i = 0; i < kLarge; ++i)
      REQUIRE(result.at(i) == 10 * x + 3);
    for (int64_t i = 0; i < kSmall; ++i)
      REQUIRE(before.at(i) == x + 3);
  }
}

}  // namespace
}  // namespace meshtrain::testing
