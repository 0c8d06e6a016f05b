#include "passes/layouts.h"

#include <doctest/doctest.h>

#include "passes/factors.h"

using namespace meshtrain;

namespace {

std::vector<Variable> with_weight(Shape shape) {
  Variable weight;
  weight.path = "d1/kernel";
  weight.shape = shape;
  Variable slot = weight;
  slot.path = "adam/d1_kernel_momentum";
  slot.role = VariableRole::kSlot;
  slot.follows = 0;
  Variable metric;
  metric.path = "loss/total";
  metric.role = VariableRole::kMetric;
  return {weight, slot, metric};
}

const DeviceMesh kMesh({2, 4}, {"data", "model"});

VariableLayout layout(Shape shape, const Sharding& user, int zero, int variable = 0) {
  std::vector<Variable> variables = with_weight(std::move(shape));
  const std::vector<Sharding> layouts(3, user);
  assign_layouts(variables, layouts, {1, zero, {0}}, kMesh);
  return variables[variable].layout;
}

}  // namespace

TEST_CASE("assign_layouts: the four layouts by ZeRO level") {
  const Sharding user{{{}, {1}}, 0, Combine::kSum};
  const Sharding split{{{0}, {1}}, 0, Combine::kSum};
  struct Row {
    int zero;
    Sharding storage, compute, grad, state;
  };
  for (const Row& row : {Row{0, user, user, user, user}, Row{1, user, user, split, split},
                         Row{2, user, user, split, split}, Row{3, split, user, split, split}}) {
    CAPTURE(row.zero);
    const VariableLayout got = layout({16, 8}, user, row.zero);
    CHECK(got.storage == row.storage);
    CHECK(got.compute == row.compute);
    CHECK(got.grad == row.grad);
    CHECK(got.state == row.state);
    CHECK(layout({16, 8}, user, row.zero, 1).storage == row.state);  // slots follow the state
  }
}

TEST_CASE("assign_layouts: a weight that no zero axis divides stays whole") {
  const Sharding whole = Sharding::replicated(2);
  CHECK(layout({7, 5}, whole, 3).storage == whole);
}

TEST_CASE("assign_layouts: zero axes go to the largest whole dimension that they divide") {
  CHECK(layout({8, 64}, Sharding::replicated(2), 3).storage ==
        Sharding{{{}, {0}}, 0, Combine::kSum});
  CHECK(layout({8, 63}, Sharding::replicated(2), 3).storage ==
        Sharding{{{0}, {}}, 0, Combine::kSum});
}

TEST_CASE("assign_layouts: a user layout over the batch axis is gathered for computing") {
  const Sharding user{{{0}, {1}}, 0, Combine::kSum};
  const VariableLayout got = layout({16, 8}, user, 0);
  CHECK(got.storage == user);
  CHECK(got.compute == Sharding{{{}, {1}}, 0, Combine::kSum});
  CHECK(got.grad == user);
}

TEST_CASE("project: axes fill compound dimensions from the major factor") {
  ShardingRule rule;
  rule.factors = {{2, FactorKind::kPass}, {4, FactorKind::kPass}};
  const TensorFactors tensor = {{0, 1}};  // one dimension of 8 = 2 x 4
  const DeviceMesh mesh({2, 2, 3}, {"a", "b", "c"});
  const Projection both = project(tensor, {{0, 1}}, rule, mesh);
  CHECK(both.exact);
  CHECK(both.axes[0] == AxisList{0});
  CHECK(both.axes[1] == AxisList{1});
  CHECK(unproject(tensor, both.axes, rule, mesh)[0] == AxisList{0, 1});
  CHECK_FALSE(project(tensor, {{2}}, rule, mesh).exact);
  // A minor factor alone would interleave the data: it does not count.
  CHECK(unproject(tensor, {{}, {1}}, rule, mesh)[0].empty());
}
