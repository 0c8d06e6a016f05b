#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "ir/name_list.h"
#include "ir/op.h"
#include "op/op_case.h"
#include "unit/ir/small_mlp.h"

namespace meshtrain {
namespace {

const DeviceMesh kMesh({2, 2}, {"data", "model"});

// Everything but the op's address, which the name stands for.
void check_equal(const Graph& a, const Graph& b) {
  REQUIRE(a.nodes.size() == b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node& x = a.nodes[i];
    const Node& y = b.nodes[i];
    CHECK(x.op == y.op);
    CHECK(x.inputs == y.inputs);
    CHECK(x.outputs == y.outputs);
    CHECK(x.attrs == y.attrs);
    CHECK(x.path == y.path);
    CHECK(x.phase == y.phase);
  }
  REQUIRE(a.values.size() == b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Value& x = a.values[i];
    const Value& y = b.values[i];
    CHECK(x.shape == y.shape);
    CHECK(x.dtype == y.dtype);
    CHECK(x.producer == y.producer);
    CHECK(x.result_index == y.result_index);
    CHECK(x.sharding == y.sharding);
    CHECK(x.cotangent_of == y.cotangent_of);
    CHECK(x.sharding_origin == y.sharding_origin);
  }
  REQUIRE(a.variables.size() == b.variables.size());
  for (size_t i = 0; i < a.variables.size(); ++i) {
    const Variable& x = a.variables[i];
    const Variable& y = b.variables[i];
    CHECK(x.path == y.path);
    CHECK(x.shape == y.shape);
    CHECK(x.dtype == y.dtype);
    CHECK(x.role == y.role);
    CHECK(x.trainable == y.trainable);
    CHECK(x.follows == y.follows);
    CHECK(x.layout.storage == y.layout.storage);
    CHECK(x.layout.compute == y.layout.compute);
    CHECK(x.layout.grad == y.layout.grad);
    CHECK(x.layout.state == y.layout.state);
  }
  REQUIRE(a.outputs.size() == b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    CHECK(a.outputs[i].name == b.outputs[i].name);
    CHECK(a.outputs[i].value == b.outputs[i].value);
  }
  REQUIRE(a.updates.size() == b.updates.size());
  for (size_t i = 0; i < a.updates.size(); ++i) {
    CHECK(a.updates[i].variable == b.updates[i].variable);
    CHECK(a.updates[i].value == b.updates[i].value);
  }
}

TEST_CASE("The text of a small model with gradients is as before") {
  const std::string path = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/unit/ir/small_mlp.txt";
  std::ifstream file(path);
  std::ostringstream expected;
  expected << file.rdbuf();
  CHECK(print(small_mlp().graph) == expected.str());
}

TEST_CASE("A graph reads back from its text") {
  const Graph graph = small_mlp().graph;
  check_equal(parse_graph(print(graph)), graph);
}

TEST_CASE("Every op reads back from its text") {
  for (const OpCase& op_case : all_cases()) {
    const Graph graph = case_graph(op_case);
    check_equal(parse_graph(print(graph)), graph);
  }
}

TEST_CASE("Shardings and where they come from read back") {
  Graph graph;
  Builder b(graph);
  const int w = b.add_variable({.path = "w", .shape = {8, 6}});
  graph.variables[w].layout = {
      parse_sharding("[[data, model], null]", kMesh), parse_sharding("[model, null]", kMesh),
      parse_sharding("[null, null]", kMesh), parse_sharding("[data, null]", kMesh)};
  b.add_variable({.path = "adam/w \"m\"",
                  .shape = {},
                  .role = VariableRole::kSlot,
                  .trainable = false,
                  .follows = w});
  const ValueId x = b.input("x", {8, 6}, DType::kFloat32, true);
  graph.values[x].sharding = parse_sharding("[data, model]", kMesh);
  graph.values[x].sharding_origin = "batch";
  const std::vector<ValueId> top = b.top_k(x, 6);
  graph.values[top[1]].sharding = parse_sharding("[data, null] max(model)", kMesh);
  graph.values[top[1]].sharding_origin = "layout \"a\\b\"\nline 2";
  graph.values[top[1]].cotangent_of = x;
  const std::vector<ValueId> more = b.top_k(x, 3);
  graph.values[more[0]].sharding = parse_sharding("[[model, data], null]", kMesh);
  graph.values[more[0]].sharding_origin = name_list({"batch", "d,1/kernel"});
  const std::string text = print(graph, kMesh);
  CHECK(text.find("from \"batch, d,1/kernel\"") != std::string::npos);
  check_equal(parse_graph(text, kMesh), graph);
  CHECK(print(parse_graph(text, kMesh), kMesh) == text);
}

TEST_CASE("Attributes keep their types and every digit") {
  Graph graph;
  Builder b(graph);
  const double infinity = std::numeric_limits<double>::infinity();
  for (double value : {1.0, -0.0, 0.1, 1e300, 5e-324, infinity, -infinity, 1234567890123456.0}) {
    b.constant(value, DType::kFloat64);
  }
  graph.nodes[0].attrs["integer"] = std::numeric_limits<int64_t>::min();
  graph.nodes[0].attrs["empty"] = std::vector<int64_t>{};
  graph.nodes[0].attrs["list"] = std::vector<int64_t>{-1, 2};
  graph.nodes[0].attrs["text"] = std::string("a \"quoted\" \\ text, with {braces}\n");
  check_equal(parse_graph(print(graph)), graph);
}

TEST_CASE("Layer names with spaces read back") {
  Graph graph;
  Builder b(graph);
  const auto scope = b.scope("my \"layer\"");
  b.constant(1, DType::kFloat32);
  check_equal(parse_graph(print(graph)), graph);
}

#define CHECK_ERROR(text, words) \
  CHECK_THROWS_WITH_AS(parse_graph(text, kMesh), doctest::Contains(words), Error)

TEST_CASE("Errors of the text name the line and the reason") {
  const std::string x =
      R"(%0: f32[2,4] = input() {batch=1, dtype="float32", name="x", shape=[2,4]} @x forward)";
  CHECK_NOTHROW(parse_graph(x));
  CHECK_ERROR(x + "\n%1: f32[2,4] = nag(%0) @n forward", "line 2, column 19: there is no op `nag`");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%1) @n forward", "line 2, column 22: %1 is not defined");
  CHECK_ERROR(x + "\n\n%2: f32[2,4] = neg(%0) @n forward", "line 3, column 3: %2 defined where %1");
  CHECK_ERROR(x + "\n%1: f32[2,5] = neg(%0) @n forward", "the op gives f32[2,4]");
  CHECK_ERROR(x + "\n%1: f31[2,4] = neg(%0) @n forward", "there is no dtype `f31`");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0, %0) @n forward", "2 operands, 1 expected");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) @n sideways", "there is no phase `sideways`");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) @n", "a name expected");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) {a=1, a=2} @n forward", "attribute `a` is there twice");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) {a=1x} @n forward", "`1x` is no number");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) {a=\"x} @n forward", "no closing quote");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) @n forward [rows, null]", "rows");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) @n forward [data, null", "line 2");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) @n forward nonsense", "nothing more was expected");
  CHECK_ERROR(x + "\n%1: f32[2,4] = neg(%0) @x forward", "another node's");
  CHECK_ERROR(x + "\nupdate 0 = %0", "variable 0");
  CHECK_ERROR("variable \"w\": f32[2] wait", "there is no role `wait`");
  CHECK_ERROR("output \"y\" = %0", "%0 is not defined");
}

}  // namespace
}  // namespace meshtrain
