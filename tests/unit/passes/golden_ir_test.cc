// The text of small training steps after each pass, under the layouts people use most.
#include <doctest/doctest.h>

#include <algorithm>

#include "passes/bucket.h"
#include "passes/layouts.h"
#include "passes/lower.h"
#include "passes/memory.h"
#include "passes/partition.h"
#include "passes/propagate.h"
#include "passes/schedule.h"
#include "passes/simplify.h"
#include "support/golden.h"
#include "support/small_models.h"

using namespace meshtrain;
using test::check_golden;
using testing::StepBuilder;

namespace {

Graph mlp(int layers) {
  StepBuilder s(8, 12, 4);
  ValueId h = s.x;
  for (int i = 1; i < layers; ++i) {
    h = s.b.unary("relu", s.dense(fmt::format("d{}", i), h, 16, true));
  }
  return s.finish(s.dense(fmt::format("d{}", layers), h, 4, true));
}

struct Case {
  const char* name;
  DeviceMesh mesh;
  AxisList batch_axes;
  std::vector<Sharding> layouts;  // d1/kernel, d1/bias, d2/kernel, d2/bias, ...
  int zero;
  bool gathers_again = false;
};

std::vector<Case> cases() {
  const Sharding matrix = Sharding::replicated(2);
  const Sharding vector = Sharding::replicated(1);
  return {
      {"data_parallel", DeviceMesh({4}, {"data"}), {0}, {matrix, vector, matrix, vector}, 0},
      {"tensor_parallel",
       DeviceMesh({2, 2}, {"data", "model"}),
       {0},
       {{{{}, {1}}}, {{{1}}}, {{{1}, {}}}, vector},
       0},
      {"fsdp", DeviceMesh({4}, {"data"}), {0}, {matrix, vector, matrix, vector}, 3},
      {"regather",
       DeviceMesh({4}, {"data"}),
       {0},
       {matrix, vector, matrix, vector, matrix, vector},
       3,
       true},
  };
}

void check_passes(const Case& c) {
  Graph graph = mlp(static_cast<int>(c.layouts.size() / 2));
  AxisMask batch = 0;
  for (const int axis : c.batch_axes) {
    batch |= AxisMask{1} << axis;
  }
  assign_layouts(graph.variables, c.layouts, {batch, c.zero, c.batch_axes}, c.mesh);
  graph = simplify(graph);
  PropagateOptions options;
  options.batch_axes = c.batch_axes;
  propagate(graph, c.mesh, options);
  check_golden(std::string("passes/") + c.name + ".propagated.ir", print(graph, c.mesh));
  if (c.gathers_again) {
    graph = gather_weights_again(std::move(graph), c.mesh, 0);
  }
  graph = bucket_collectives(partition(graph, c.mesh), c.mesh);
  verify_sharded(graph, c.mesh);
  const std::string text = print(graph, c.mesh);
  check_golden(std::string("passes/") + c.name + ".partitioned.ir", text);
  CHECK(print(parse_graph(text, c.mesh), c.mesh) == text);
  CHECK(memory_plan_problem(lower_program(graph, c.mesh)) == "");
}

}  // namespace

TEST_CASE("golden IR: an MLP under data parallel and tensor parallel and FSDP") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    check_passes(c);
  }
}

TEST_CASE("propagate: nothing flows into a weight from what reads its product") {
  const DeviceMesh mesh({2, 2}, {"data", "model"});
  const Sharding matrix = Sharding::replicated(2), vector = Sharding::replicated(1);
  const std::vector<Sharding> layouts = {matrix, vector, {{{1}, {}}}, vector};
  Graph graph = mlp(2);
  assign_layouts(graph.variables, layouts, {1, 0, {0}}, mesh);
  graph = simplify(graph);
  PropagateOptions options;
  options.batch_axes = {0};
  propagate(graph, mesh, options);
  // d1's output is split over `model` for the rows of d2/kernel; d1/kernel and d1/bias are not.
  int num_weights = 0;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "var_use") {
      continue;
    }
    const Variable& weight = graph.variables[graph.producer(node.inputs[0]).attr_int("variable")];
    CAPTURE(weight.path);
    CHECK(graph.values[node.outputs[0]].sharding->dims == weight.layout.compute.dims);
    ++num_weights;
  }
  CHECK(num_weights >= 4);
}

TEST_CASE("simplify: a spare result that nothing reads is left out") {
  for (const bool has_gradient : {false, true}) {
    Graph graph;
    Builder b(graph);
    const auto input = [&](const char* name, Shape shape) {
      return b.input(name, std::move(shape), DType::kFloat32, false);
    };
    const ValueList results = b.add_node(
        "scan_rnn",
        {input("x", {2, 3, 8}), input("r", {2, 8}), input("h", {2, 2}), input("c", {2, 2})},
        {{"cell", std::string("lstm")},
         {"activation", std::string("tanh")},
         {"recurrent_activation", std::string("sigmoid")},
         {"has_mask", int64_t{0}},
         {"has_drop", int64_t{0}},
         {"keeps_gates", int64_t{1}}});
    REQUIRE(results.size() == 3);
    graph.outputs.push_back({"y", results[0]});
    if (has_gradient) {
      const ValueId x = graph.nodes[0].outputs[0];
      graph.outputs.push_back(
          {"dx", gradients(b, b.reduce_sum_all(results[0]), std::vector{x})[0]});
    }
    graph = simplify(std::move(graph));
    verify(graph);
    const auto scan = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [](const Node& node) { return node.op->name == "scan_rnn"; });
    REQUIRE(scan != graph.nodes.end());
    CHECK(scan->outputs.size() == (has_gradient ? 3 : 2));
    CHECK(scan->attr_int("keeps_gates") == int64_t{has_gradient});
  }
}
