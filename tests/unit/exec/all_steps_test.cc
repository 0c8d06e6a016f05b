// What nothing reads behind a step.
#include "exec/all_steps.h"

#include <doctest/doctest.h>

#include "one_step.h"

namespace meshtrain {
namespace {

using testing::ProgramBuilder;
using List = std::vector<int>;

constexpr DType kFloat = DType::kFloat32;

TEST_CASE("a buffer is read last by the last step that has it") {
  const DeviceMesh mesh({1}, {"data"});
  ProgramBuilder builder(mesh);
  const Sharding whole = Sharding::replicated(1);
  const auto buffer = [&] { return builder.buffer({4}, kFloat, whole); };
  const int x = builder.input({4}, kFloat, whole);
  const int constant = buffer(), weight = buffer();
  const int once = buffer(), twice = buffer(), result = buffer();
  builder.program().buffers[weight].variable = 0;
  builder.step("constant", {}, {constant}, {{"value", 1.0}});
  builder.step("neg", {x}, {once});
  builder.step("add", {once, weight}, {twice});
  builder.step("mul", {twice, constant}, {result});
  builder.step("neg", {twice}, {result});
  builder.output(result);
  builder.step("neg", {result}, {once});
  const Program program = builder.take();
  CHECK(last_reads(program) == std::vector<List>{{}, {once}, {}, {twice}, {}});
}

TEST_CASE("a shared shard is not last read by one of its readers") {
  const DeviceMesh mesh({2}, {"data"});
  ProgramBuilder builder(mesh);
  const Sharding whole = Sharding::replicated(1), split{{{0}}};
  const int x = builder.input({4}, kFloat, whole);
  const int shared = builder.buffer({4}, kFloat, whole), own = builder.buffer({4}, kFloat, split);
  const int result = builder.buffer({4}, kFloat, split);
  builder.step("neg", {x}, {shared});
  builder.step("neg", {x}, {own});
  builder.step("add", {shared, own}, {result});
  builder.output(result);
  CHECK(last_reads(builder.take()) == std::vector<List>{{}, {}, {own}});
}

}  // namespace
}  // namespace meshtrain
