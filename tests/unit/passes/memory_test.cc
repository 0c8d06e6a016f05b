#include "passes/memory.h"

#include <doctest/doctest.h>

#include "passes/layouts.h"
#include "passes/pipeline.h"
#include "support/small_models.h"

using namespace meshtrain;
using testing::StepBuilder;

namespace {

Program deep_mlp(int layers) {
  StepBuilder s(32, 64, 64);
  ValueId h = s.x;
  for (int i = 0; i < layers; ++i) {
    h = s.b.unary("tanh", s.dense(fmt::format("d{}", i), h, 64, true));
  }
  Graph graph = s.finish(h);
  const DeviceMesh mesh({2}, {"data"});
  std::vector<Sharding> user;
  for (const Variable& v : graph.variables) {
    user.push_back(Sharding::replicated(v.shape.size()));
  }
  assign_layouts(graph.variables, user, {1, 0, {}}, mesh);
  CompileOptions options;
  options.propagate.batch_axes = {0};
  return compile(graph, mesh, options).program;
}

}  // namespace

TEST_CASE("plan_memory: buffers that live together never share bytes") {
  for (const int layers : {1, 3, 10}) {
    CHECK(memory_plan_problem(deep_mlp(layers)) == "");
  }
}

TEST_CASE("memory_plan_problem: an overlap is found") {
  Program program = deep_mlp(3);
  int64_t found = 0;
  for (Buffer& buffer : program.buffers) {
    const int64_t offset = buffer.offset;
    buffer.offset = program.buffers[program.inputs[0].buffer].offset;
    found += memory_plan_problem(program).empty() ? 0 : 1;
    buffer.offset = offset;
  }
  CHECK(found > static_cast<int64_t>(program.buffers.size()) / 2);
}

TEST_CASE("plan_memory: the arena is smaller than all buffers side by side") {
  const Program program = deep_mlp(10);
  int64_t sum = 0;
  for (const Buffer& buffer : program.buffers) {
    sum += buffer.variable == kNone ? buffer.shard_bytes * buffer.num_shards : 0;
  }
  CHECK(program.arena_bytes > 0);
  CHECK(program.arena_bytes < sum * 8 / 10);
}

TEST_CASE("lower_program: updated variables are written in place") {
  const Program program = deep_mlp(2);
  for (const ProgramStep& step : program.steps) {
    CHECK(step.op->name != "pin");  // no copy at the end of the step
  }
}
