// Collectives over several tensors at once.
#include <doctest/doctest.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace meshtrain {
namespace {

const DeviceMesh kMesh({2, 4}, {"data", "model"});
using Ints = std::vector<int64_t>;

// A graph with buckets, whose values are given shardings by their text form.
struct Buckets {
  Graph graph;
  Builder b{graph};

  ValueId lies(ValueId value, std::string_view sharding) {
    graph.values[value].sharding = parse_sharding(sharding, kMesh);
    return value;
  }
  ValueId input(const char* name, Shape shape, std::string_view sharding) {
    return lies(b.input(name, std::move(shape), DType::kFloat32, true), sharding);
  }
  // A sum over `data` that is still partial: of a dimension of 2 that is split over it.
  ValueId partial(const char* name, Shape shape, std::string_view sharding) {
    Sharding whole = parse_sharding(sharding, kMesh).reduced();
    const auto last = static_cast<int64_t>(shape.size());
    shape.push_back(2);
    whole.dims.push_back({0});
    const ValueId x = b.input(name, std::move(shape), DType::kFloat32, true);
    graph.values[x].sharding = whole;
    return lies(b.reduce_sum(x, {last}), sharding);
  }
  std::vector<ValueId> bucket(std::string_view op, std::vector<ValueId> inputs, Ints axes,
                              Ints dims, Ints to_dims, std::vector<std::string_view> shardings) {
    Attrs attrs = {
        {"axes", std::move(axes)}, {"dims", std::move(dims)}, {"to_dims", std::move(to_dims)}};
    if (op == "all_reduce" || op == "reduce_scatter") {
      attrs["combine"] = std::string("sum");
    }
    const std::vector<ValueId> results = b.add_node(op, std::move(inputs), std::move(attrs));
    for (size_t i = 0; i < results.size(); ++i) {
      b.output("r" + std::to_string(i), lies(results[i], shardings.at(i)));
    }
    return results;
  }
  void check() { verify_sharded(graph, kMesh); }
};

#define CHECK_BROKEN(words) CHECK_THROWS_WITH_AS(check(), doctest::Contains(words), InternalError)

TEST_CASE_FIXTURE(Buckets, "A bucket has a result of its own shape for each operand") {
  const ValueId a = partial("a", {4, 8}, "[null, model] sum(data)");
  const ValueId c = partial("c", {6}, "[null] sum(data)");
  const auto results =
      bucket("all_reduce", {a, c}, {0}, {-1, -1}, {-1, -1}, {"[null, model]", "[null]"});
  REQUIRE(results.size() == 2);
  CHECK(graph.values[results[0]].shape == Shape{4, 8});
  CHECK(graph.values[results[1]].shape == Shape{6});
  CHECK(graph.values[results[1]].dtype == DType::kFloat32);
  check();
}

TEST_CASE_FIXTURE(Buckets, "A bucket without a dim for each operand is refused") {
  const ValueId a = partial("a", {4}, "[null] sum(data)");
  const ValueId c = partial("c", {6}, "[null] sum(data)");
  CHECK_THROWS_WITH_AS(
      b.add_node("all_reduce", {a, c},
                 {{"axes", Ints{0}}, {"combine", std::string("sum")}, {"dims", Ints{-1}}}),
      doctest::Contains("1 dims for 2 operands"), InternalError);
}

TEST_CASE_FIXTURE(Buckets, "Each tensor of a bucket is gathered along its own dimension") {
  const ValueId a = input("a", {8, 4}, "[model, null]");
  const ValueId c = input("c", {4, 8}, "[null, model]");
  bucket("all_gather", {a, c}, {1}, {0, 1}, {-1, -1}, {"[null, null]", "[null, null]"});
  check();
}

TEST_CASE_FIXTURE(Buckets, "The second tensor of a bucket is checked like the first") {
  const ValueId a = input("a", {8, 4}, "[model, null]");
  const ValueId c = input("c", {4, 8}, "[null, model]");
  bucket("all_gather", {a, c}, {1}, {0, 1}, {-1, -1}, {"[null, null]", "[null, model]"});
  CHECK_BROKEN("should be [null, null]");
}

TEST_CASE_FIXTURE(Buckets, "A dimension of a bucket that does not have its axes is found") {
  const ValueId a = input("a", {8, 4}, "[model, null]");
  const ValueId c = input("c", {4, 8}, "[null, model]");
  bucket("all_gather", {a, c}, {1}, {0, 0}, {-1, -1}, {"[null, null]", "[null, null]"});
  CHECK_THROWS_AS(check(), InternalError);
}

TEST_CASE_FIXTURE(Buckets, "Each tensor of a bucket is scattered to its own dimension") {
  const ValueId a = partial("a", {8, 4}, "[null, null] sum(data)");
  const ValueId c = partial("c", {4, 8}, "[null, model] sum(data)");
  bucket("reduce_scatter", {a, c}, {0}, {0, 1}, {-1, -1},
         {"[data, null]", "[null, [model, data]]"});
  check();
}

TEST_CASE_FIXTURE(Buckets, "A tensor of a bucket that was not partial is found") {
  const ValueId a = partial("a", {8}, "[null] sum(data)");
  const ValueId c = input("c", {8}, "[null]");
  bucket("all_reduce", {a, c}, {0}, {-1, -1}, {-1, -1}, {"[null]", "[null]"});
  CHECK_THROWS_AS(check(), InternalError);
}

TEST_CASE_FIXTURE(Buckets, "A bucket reads back from its text with its lists") {
  const ValueId a = partial("a", {8, 4}, "[null, null] sum(data)");
  const ValueId c = partial("c", {4, 8}, "[null, model] sum(data)");
  bucket("reduce_scatter", {a, c}, {0}, {0, 1}, {-1, -1},
         {"[data, null]", "[null, [model, data]]"});
  const std::string text = print(graph, kMesh);
  const Graph again = parse_graph(text, kMesh);
  CHECK(print(again, kMesh) == text);
  const Node& node = again.nodes.back();
  CHECK(node.op == graph.nodes.back().op);
  CHECK(node.attr_ints("dims") == Ints{0, 1});
  CHECK(node.outputs.size() == 2);
  verify_sharded(again, kMesh);
}

}  // namespace
}  // namespace meshtrain
