#include "passes/row_fusion.h"

#include <doctest/doctest.h>

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
  fuse_rows(program);
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
