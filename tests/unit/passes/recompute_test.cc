// What the backward pass keeps, and what it computes again.
#include "passes/recompute.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numbers>
#include <set>

#include "ir/op.h"
#include "passes/layouts.h"
#include "passes/lower.h"
#include "passes/partition.h"
#include "passes/propagate.h"
#include "passes/simplify.h"
#include "support/small_models.h"

using namespace meshtrain;
using testing::StepBuilder;

namespace {

const DeviceMesh kMesh({2}, {"data"});

Graph partitioned(Graph graph) {
  std::vector<Sharding> layouts;
  for (const Variable& variable : graph.variables)
    layouts.push_back(Sharding::replicated(variable.shape.size()));
  assign_layouts(graph.variables, layouts, {AxisMask{1}, 0, {0}}, kMesh);
  graph = simplify(std::move(graph));
  PropagateOptions options;
  options.batch_axes = {0};
  propagate(graph, kMesh, options);
  return partition(std::move(graph), kMesh);
}

// Forward results of elementwise ops of many elements that backward nodes read.
std::string kept_results(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    for (const ValueId input : node.inputs) {
      const Node& producer = graph.producer(input);
      if (node.phase == Phase::kBackward && producer.phase == Phase::kForward &&
          producer.op->elementwise && num_elements(graph.shape(input)) > 16)
        names.insert(std::string(producer.op->name));
    }
  }
  return fmt::format("{}", fmt::join(names, " "));
}

bool has_copy(const Graph& graph, std::string_view op) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op->name == op && node.path.find("/again") != std::string::npos;
  });
}

int64_t arena(const Graph& graph) {
  return lower_program(graph, MeshPart(kMesh)).arena_bytes;
}

// x/2 (1 + erf(x/sqrt(2))) between two dense layers.
Graph gelu_step() {
  StepBuilder s(64, 12, 4);
  const ValueId x = s.dense("d1", s.x, 32, true);
  const ValueId half = s.b.mul(x, 0.5);
  const ValueId erf = s.b.unary("erf", s.b.mul(x, 1 / std::numbers::sqrt2));
  return s.finish(s.dense("d2", s.b.mul(half, s.b.add(erf, 1.0)), 4, true));
}

}  // namespace

TEST_CASE("GELU keeps its operand in place of two products of it") {
  const Graph before = partitioned(gelu_step());
  CHECK(kept_results(before) == "add mul sub");  // sub: of the loss
  const Graph after = recompute_arithmetic(before, kMesh);
  verify_sharded(after, kMesh);
  CHECK(has_copy(after, "mul"));
  CHECK_FALSE(has_copy(after, "erf"));
  CHECK(arena(after) < arena(before));
}

TEST_CASE("nothing is computed again where it saves no array") {
  StepBuilder s(64, 12, 4);  // the product's gradient keeps what relu gives
  const ValueId h = s.b.unary("relu", s.dense("d1", s.x, 32, true));
  const Graph before = partitioned(s.finish(s.dense("d2", h, 4, true)));
  CHECK(print(recompute_arithmetic(before, kMesh), kMesh) == print(before, kMesh));
}

TEST_CASE("functions are not computed again, nor is what they give to a product") {
  StepBuilder s(64, 12, 4);
  const ValueId h = s.b.unary("tanh", s.dense("d1", s.x, 32, false));
  const Graph before = partitioned(s.finish(s.dense("d2", s.b.mul(h, 0.5), 4, false)));
  const Graph after = recompute_arithmetic(before, kMesh);
  CHECK_FALSE(has_copy(after, "tanh"));
  CHECK_FALSE(has_copy(after, "mul"));
}
