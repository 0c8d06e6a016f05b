#include "passes/row_fusion.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "ir/builder.h"
#include "passes/memory.h"
#include "passes/pipeline.h"

using namespace meshtrain;

// A column that belongs to the rows, and as a row of weights is needed before them.
TEST_CASE("fuse_rows: a step that a group needs in two ways is there once") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {8, 8}, DType::kFloat32, true);
  const ValueId v = b.input("v", {8, 1}, DType::kFloat32, true);
  const ValueId e = b.unary("exp", x);
  b.output("sum", b.reduce_sum(e, {1}));
  const ValueId column = b.unary("tanh", v);
  const ValueId both = b.binary("mul", b.binary("add", e, column), b.reshape(column, {1, 8}));
  b.output("both", both);
  Program program = compile(graph, DeviceMesh({1}, {"data"}), {}).program;
  const size_t steps = program.steps.size();
  fuse_rows(program, RowTarget::kGpu);
  CHECK(program.steps.size() == steps);
  std::set<int> written;
  bool has_rows = false;
  for (const ProgramStep& step : program.steps) {
    has_rows |= step.row_fusion != kNone;
    REQUIRE(!step.outputs.empty());
    for (const int buffer : step.outputs)
      CHECK(written.insert(buffer).second);
  }
  CHECK(has_rows);
  CHECK(memory_plan_problem(program) == "");
}

// A softmax over the axes, and the number of its steps that are one kernel on a processor.
static int fused_on_cpu(const Shape& shape, const std::vector<int64_t>& axes, DType dtype) {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", shape, dtype, true);
  const ValueId e = b.unary("exp", b.sub(x, b.reduce_max(x, axes, true)));
  b.output("y", b.binary("div", e, b.reduce_sum(e, axes, true)));
  Program program = compile(graph, DeviceMesh({1}, {"data"}), {}).program;
  fuse_rows(program, RowTarget::kCpu);
  CHECK(memory_plan_problem(program) == "");
  return static_cast<int>(
      std::count_if(program.steps.begin(), program.steps.end(),
                    [](const ProgramStep& step) { return step.row_fusion != kNone; }));
}

TEST_CASE("fuse_rows: a processor takes contiguous rows of few columns, not of 16 bits") {
  CHECK(fused_on_cpu({8, 4096}, {1}, DType::kFloat32) >= 4);
  CHECK(fused_on_cpu({8, 3, 5}, {1, 2}, DType::kFloat64) >= 4);
  CHECK(fused_on_cpu({8, 4097}, {1}, DType::kFloat32) == 0);
  CHECK(fused_on_cpu({3, 8, 5}, {0, 2}, DType::kFloat32) == 0);
  CHECK(fused_on_cpu({8, 64}, {1}, DType::kBFloat16) == 0);
}
