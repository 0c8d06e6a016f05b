// Each broken invariant is found, and named.
#include <doctest/doctest.h>

#include "base/error.h"
#include "ir/op.h"
#include "unit/ir/small_mlp.h"

namespace meshtrain {
namespace {

// The index of the node with this path.
NodeId node_at(const Graph& graph, std::string_view path) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].path == path) {
      return static_cast<NodeId>(i);
    }
  }
  FAIL("no node ", path);
  return kNone;
}

struct BrokenGraph {
  Graph graph = small_mlp().graph;
  Node& node(std::string_view path) { return graph.nodes[node_at(graph, path)]; }
  Value& result(std::string_view path) { return graph.values[node(path).outputs[0]]; }
};

#define CHECK_BROKEN(words) \
  CHECK_THROWS_WITH_AS(verify(graph), doctest::Contains(words), InternalError)

TEST_CASE_FIXTURE(BrokenGraph, "A graph of the builder is well-formed") {
  verify(graph);
}

TEST_CASE_FIXTURE(BrokenGraph, "An operand defined later is found") {
  node("d1/add").inputs[0] = node("relu").outputs[0];
  CHECK_BROKEN("d1/add");
}

TEST_CASE_FIXTURE(BrokenGraph, "A node that reads its own result is found") {
  node("d1/add").inputs[0] = node("d1/add").outputs[0];
  CHECK_BROKEN("is defined only by node");
}

TEST_CASE_FIXTURE(BrokenGraph, "An operand that does not exist is found") {
  node("d1/add").inputs[0] = 1000;
  CHECK_BROKEN("%1000 does not exist");
}

TEST_CASE_FIXTURE(BrokenGraph, "A missing operand is found") {
  node("d1/add").inputs.pop_back();
  CHECK_BROKEN("1 operands, 2 expected");
}

TEST_CASE_FIXTURE(BrokenGraph, "A missing op is found") {
  node("d1/add").op = nullptr;
  CHECK_BROKEN("has no op");
}

TEST_CASE_FIXTURE(BrokenGraph, "A path of two nodes is found") {
  node("d2/add").path = "d1/add";
  CHECK_BROKEN("another node's");
}

TEST_CASE_FIXTURE(BrokenGraph, "An empty path is found") {
  node("d1/add").path.clear();
  CHECK_BROKEN("path is empty");
}

TEST_CASE_FIXTURE(BrokenGraph, "A wrong shape is found") {
  result("d1/einsum").shape = {8, 5};
  CHECK_BROKEN("d1/einsum");
}

TEST_CASE_FIXTURE(BrokenGraph, "A wrong dtype is found") {
  result("relu").dtype = DType::kFloat64;
  CHECK_BROKEN("is float64(8, 4), the op gives float32(8, 4)");
}

TEST_CASE_FIXTURE(BrokenGraph, "A missing attribute is found") {
  node("d1/einsum").attrs.clear();
  CHECK_BROKEN("no attribute `equation`");
}

TEST_CASE_FIXTURE(BrokenGraph, "An attribute of another type is found") {
  node("d1/einsum").attrs["equation"] = int64_t{3};
  CHECK_BROKEN("attribute `equation` is no string");
}

TEST_CASE_FIXTURE(BrokenGraph, "A value that names another producer is found") {
  result("relu").producer = 0;
  CHECK_BROKEN("says it is result 0 of node 0");
}

TEST_CASE_FIXTURE(BrokenGraph, "A result that is not the next value is found") {
  std::swap(node("d1/add").outputs[0], node("relu").outputs[0]);
  CHECK_BROKEN("result 0 is");
}

TEST_CASE_FIXTURE(BrokenGraph, "A value that no node defines is found") {
  graph.values.emplace_back();
  CHECK_BROKEN("values");
}

TEST_CASE_FIXTURE(BrokenGraph, "A cotangent of another shape is found") {
  result("d1/einsum/grad/einsum_1").cotangent_of = node("relu").outputs[0];
  CHECK_BROKEN("is the cotangent of");
}

TEST_CASE_FIXTURE(BrokenGraph, "A sharding of another rank is found") {
  result("relu").sharding = Sharding::replicated(3);
  CHECK_BROKEN("sharding of rank 3");
}

TEST_CASE_FIXTURE(BrokenGraph, "A parameter of no variable is found") {
  node("d1/parameter").attrs["variable"] = int64_t{9};
  CHECK_BROKEN("there is no variable 9");
}

TEST_CASE_FIXTURE(BrokenGraph, "Two parameters of one variable are found") {
  graph.variables[2] = graph.variables[0];
  graph.variables[2].shape = {4, 2};
  node("d2/parameter").attrs["variable"] = int64_t{0};
  graph.variables[0].shape = {4, 2};
  CHECK_BROKEN("d1/parameter");
  graph.variables[0].shape = {6, 4};
  CHECK_BROKEN("d2/parameter");
}

TEST_CASE_FIXTURE(BrokenGraph, "A parameter read twice is found") {
  const Node copy = node("d1/parameter_1");
  Node& target = node("d2/parameter_1");
  target.attrs = copy.attrs;
  graph.variables[1].shape = {2};
  CHECK_BROKEN("d1/parameter_1");
}

TEST_CASE_FIXTURE(BrokenGraph, "An output of no value is found") {
  graph.outputs[0].value = -1;
  CHECK_BROKEN("output loss");
}

TEST_CASE_FIXTURE(BrokenGraph, "Two outputs of one name are found") {
  graph.outputs.push_back(graph.outputs[0]);
  CHECK_BROKEN("two outputs are called loss");
}

TEST_CASE_FIXTURE(BrokenGraph, "An update of another shape is found") {
  std::swap(graph.updates[0].value, graph.updates[1].value);
  CHECK_BROKEN("the update of d1/kernel");
}

TEST_CASE_FIXTURE(BrokenGraph, "Two updates of one variable are found") {
  graph.updates.push_back(graph.updates[0]);
  CHECK_BROKEN("two updates of d1/kernel");
}

TEST_CASE_FIXTURE(BrokenGraph, "An update of no variable is found") {
  graph.updates[0].variable = 77;
  CHECK_BROKEN("an update of variable 77");
}

TEST_CASE_FIXTURE(BrokenGraph, "A slot that follows nothing is found") {
  graph.variables[0].follows = 40;
  CHECK_BROKEN("follows 40");
}

TEST_CASE_FIXTURE(BrokenGraph, "Uses are counted with outputs and updates") {
  const std::vector<int> counts = graph.use_counts();
  CHECK(counts[node("relu").outputs[0]] == 3);  // the next product, two gradients
  CHECK(counts[graph.updates[0].value] == 1);
  CHECK(counts[graph.outputs[0].value] == 1);
}

}  // namespace
}  // namespace meshtrain
