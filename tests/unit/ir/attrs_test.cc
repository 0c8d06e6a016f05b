#include "ir/attrs.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "ir/builder.h"
#include "ir/signatures.h"

namespace meshtrain {
namespace {

TEST_CASE("attributes are in the order of their names and the first of a name counts") {
  const Attrs attrs = {{"shape", std::vector<int64_t>{2, 3}},
                       {"axis", int64_t{1}},
                       {"rate", 0.5},
                       {"axis", int64_t{7}}};
  std::string names;
  for (const auto& [name, value] : attrs) {
    names += name + " ";
  }
  CHECK(names == "axis rate shape ");
  CHECK(attrs.at("axis") == AttrValue(int64_t{1}));
  CHECK(attrs.contains("rate"));
  CHECK(attrs.find("none") == attrs.end());
  CHECK_THROWS_AS(attrs.at("none"), std::out_of_range);
}

TEST_CASE("a change of attributes leaves their copies as they are") {
  Attrs first = {{"axis", int64_t{1}}};
  Attrs second = first;
  const uint64_t hash = first.hash();
  CHECK(second.hash() == hash);
  second["axis"] = int64_t{2};
  CHECK(first.at("axis") == AttrValue(int64_t{1}));
  CHECK(first.hash() == hash);
  CHECK(second.hash() != hash);
  CHECK(first != second);
  second["axis"] = int64_t{1};
  CHECK(first == second);
  CHECK(second.hash() == hash);
  CHECK(!second.emplace("axis", int64_t{3}).second);
  CHECK(second.emplace("begin", int64_t{0}).second);
  CHECK(second.erase("axis") == 1);
  CHECK(second.erase("axis") == 0);
  CHECK(second == Attrs{{"begin", int64_t{0}}});
  second.clear();
  CHECK(second.empty());
  CHECK(second == Attrs{});
}

TEST_CASE("nodes of one op with equal attributes and types have one signature") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {4, 6}, DType::kFloat32, true);
  const ValueId y = b.input("y", {4, 3}, DType::kFloat32, true);
  b.reduce_sum(x, {0});
  b.reduce_sum(b.neg(x), {0});
  b.reduce_sum(x, {1});  // another attribute
  b.reduce_sum(y, {0});  // another shape
  Signatures signatures;
  std::vector<int> numbers;
  for (const Node& node : graph.nodes) {
    if (node.op->name == "reduce_sum") {
      numbers.push_back(signatures.with_rule(graph, node).number);
    }
  }
  CHECK(numbers == std::vector<int>{0, 0, 1, 2});
  CHECK(signatures.rule(graph, graph.nodes.back()).factors[1].size == 3);
}

}  // namespace
}  // namespace meshtrain
