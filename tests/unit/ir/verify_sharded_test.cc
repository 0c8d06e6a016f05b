// What a partitioned graph may not do is found.
#include <doctest/doctest.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace meshtrain {
namespace {

const DeviceMesh kMesh({2, 2}, {"data", "model"});

// A graph whose values are given shardings by their text form.
struct Sharded {
  Graph graph;
  Builder b{graph};

  ValueId lies(ValueId value, std::string_view sharding) {
    graph.values[value].sharding = parse_sharding(sharding, kMesh);
    return value;
  }
  ValueId input(const char* name, Shape shape, std::string_view sharding) {
    return lies(b.input(name, std::move(shape), DType::kFloat32, true), sharding);
  }
  // A value that may be partial: a reduction of one more dimension, which the partial axes split.
  ValueId partial(const char* name, Shape shape, std::string_view sharding) {
    const Sharding result = parse_sharding(sharding, kMesh);
    const auto axis = static_cast<int64_t>(shape.size());
    shape.push_back(4);
    const ValueId x = b.input(name, std::move(shape), DType::kFloat32, true);
    Sharding whole = result.reduced();
    whole.dims.emplace_back();
    for (int a = 0; a < kMesh.num_axes(); ++a) {
      if ((result.partial >> a & 1) != 0) {
        whole.dims.back().push_back(a);
      }
    }
    graph.values[x].sharding = whole;
    const bool is_sum = result.combine == Combine::kSum;
    return lies(is_sum ? b.reduce_sum(x, {axis}) : b.reduce_max(x, {axis}), sharding);
  }
  void check() { verify_sharded(graph, kMesh); }
};

#define CHECK_BROKEN(words) CHECK_THROWS_WITH_AS(check(), doctest::Contains(words), InternalError)

TEST_CASE_FIXTURE(Sharded, "A row-parallel product may stay partial through linear ops") {
  const ValueId x = input("x", {4, 8}, "[data, model]");
  const ValueId w = input("w", {8, 6}, "[model, null]");
  const ValueId y = lies(b.einsum("bi,io->bo", {x, w}), "[data, null] sum(model)");
  const ValueId z =
      lies(b.add(lies(b.neg(y), "[data, null] sum(model)"), y), "[data, null] sum(model)");
  const ValueId t = lies(b.transpose(z, {1, 0}), "[null, data] sum(model)");
  const ValueId r =
      lies(b.apply("all_reduce", {t},
                   {{"axes", std::vector<int64_t>{1}}, {"combine", std::string("sum")}}),
           "[null, data]");
  b.output("r", r);
  check();
}

TEST_CASE_FIXTURE(Sharded, "A value without a sharding is found") {
  b.input("x", {4}, DType::kFloat32, true);
  CHECK_BROKEN("has no sharding");
}

TEST_CASE_FIXTURE(Sharded, "An axis that does not divide is found") {
  input("x", {3}, "[data]");
  CHECK_BROKEN("%0");
}

TEST_CASE_FIXTURE(Sharded, "A nonlinear op of a partial sum is found") {
  const ValueId x = partial("x", {4, 8}, "[null, null] sum(model)");
  lies(b.exp(x), "[null, null] sum(model)");
  CHECK_BROKEN("is not linear in its partial operands");
}

TEST_CASE_FIXTURE(Sharded, "A bias added to a partial sum is found") {
  const ValueId x = partial("x", {4, 8}, "[null, null] sum(model)");
  const ValueId bias = input("bias", {8}, "[null]");
  lies(b.add(x, bias), "[null, null] sum(model)");
  CHECK_BROKEN("is not linear in its partial operands");
}

TEST_CASE_FIXTURE(Sharded, "A product of two partial sums is found") {
  const ValueId x = partial("x", {4}, "[null] sum(model)");
  lies(b.mul(x, x), "[null] sum(model)");
  CHECK_BROKEN("is not linear");
}

TEST_CASE_FIXTURE(Sharded, "Sums partial over different axes are found") {
  const ValueId x = partial("x", {4}, "[null] sum(model)");
  const ValueId y = partial("y", {4}, "[null] sum(data)");
  lies(b.add(x, y), "[null] sum(data, model)");
  CHECK_BROKEN("different axes");
}

TEST_CASE_FIXTURE(Sharded, "A partial maximum is no partial sum") {
  const ValueId x = input("x", {4, 8}, "[null, model]");
  const ValueId m = lies(b.reduce_max(x, {1}), "[null] max(model)");
  lies(b.neg(m), "[null] max(model)");
  CHECK_BROKEN("reads the partial max");
}

TEST_CASE_FIXTURE(Sharded, "A reduction that forgets what is partial is found") {
  const ValueId x = input("x", {4, 8}, "[null, model]");
  lies(b.reduce_sum(x, {1}), "[null]");
  CHECK_BROKEN("should be [null] sum(model)");
}

TEST_CASE_FIXTURE(Sharded, "A sum in place of a maximum is found") {
  const ValueId x = input("x", {4, 8}, "[null, model]");
  lies(b.reduce_max(x, {1}), "[null] sum(model)");
  CHECK_BROKEN("should be [null] max(model)");
}

TEST_CASE_FIXTURE(Sharded, "Operands that are split differently are found") {
  const ValueId x = input("x", {4, 8}, "[data, null]");
  const ValueId y = input("y", {4, 8}, "[null, null]");
  lies(b.add(x, y), "[data, null]");
  CHECK_BROKEN("disagrees");
}

TEST_CASE_FIXTURE(Sharded, "A result that is split differently is found") {
  const ValueId x = input("x", {4, 8}, "[data, null]");
  lies(b.neg(x), "[model, null]");
  CHECK_BROKEN("disagrees");
}

TEST_CASE_FIXTURE(Sharded, "A split dimension that must be whole is found") {
  const ValueId x = input("x", {4, 8}, "[null, model]");
  lies(b.cumsum(x, 1), "[null, null]");
  CHECK_BROKEN("must be whole");
}

TEST_CASE_FIXTURE(Sharded, "An axis on two factors is found") {
  const ValueId x = input("x", {4, 8}, "[null, model]");
  const ValueId w = input("w", {6, 8}, "[model, null]");
  lies(b.einsum("bi,oj->bo", {x, w}), "[null, model]");
  CHECK_BROKEN("splits two factors");
}

TEST_CASE_FIXTURE(Sharded, "An axis partial in one operand and splitting another is found") {
  const ValueId x = partial("x", {4, 8}, "[null, null] sum(model)");
  const ValueId w = input("w", {8, 6}, "[null, model]");
  lies(b.einsum("bi,io->bo", {x, w}), "[null, model]");
  CHECK_BROKEN("splits another");
}

TEST_CASE_FIXTURE(Sharded, "A reshape may keep the major factors of a dimension") {
  const ValueId x = input("x", {8, 6}, "[[data, model], null]");
  lies(b.reshape(x, {4, 2, 6}), "[[data, model], null, null]");
  lies(b.reshape(x, {48}), "[[data, model]]");
  lies(b.reshape(x, {2, 4, 6}), "[data, model, null]");
  check();
}

TEST_CASE_FIXTURE(Sharded, "A reshape that would interleave is found") {
  const ValueId x = input("x", {24}, "[model]");
  lies(b.reshape(x, {4, 6}), "[null, model]");
  CHECK_BROKEN("disagrees");
}

TEST_CASE_FIXTURE(Sharded, "A partial output is found") {
  const ValueId x = input("x", {4, 8}, "[null, model]");
  b.output("sum", lies(b.reduce_sum(x, {1}), "[null] sum(model)"));
  CHECK_BROKEN("output sum is partial");
}

TEST_CASE_FIXTURE(Sharded, "An update that lies elsewhere than the variable is found") {
  const int w = b.add_variable({.path = "w", .shape = {4}});
  graph.variables[w].layout.storage = parse_sharding("[data]", kMesh);
  const ValueId param = lies(b.parameter(w), "[data]");
  b.update(w, lies(b.neg(param), "[data]"));
  check();
  graph.variables[w].layout.storage = parse_sharding("[model]", kMesh);
  CHECK_BROKEN("the update of w lies");
}

// Collectives: from, attributes, and to.
struct Move {
  std::string_view op, from;
  Attrs attrs;
  std::string_view to;
};

using Ints = std::vector<int64_t>;

const Move kMoves[] = {
    {"all_gather",
     "[[data, model], null]",
     {{"axes", Ints{1}}, {"dim", int64_t{0}}},
     "[data, null]"},
    {"all_gather",
     "[[data, model], null]",
     {{"axes", Ints{0, 1}}, {"dim", int64_t{0}}},
     "[null, null]"},
    {"reduce_scatter",
     "[null, null] sum(data)",
     {{"axes", Ints{0}}, {"dim", int64_t{1}}, {"combine", std::string("sum")}},
     "[null, data]"},
    {"all_reduce",
     "[null, model] max(data)",
     {{"axes", Ints{0}}, {"combine", std::string("max")}},
     "[null, model]"},
    {"all_to_all",
     "[data, null]",
     {{"axes", Ints{0}}, {"dim", int64_t{0}}, {"to_dim", int64_t{1}}},
     "[null, data]"},
    {"shard_slice",
     "[data, null]",
     {{"axes", Ints{1}}, {"dim", int64_t{0}}},
     "[[data, model], null]"},
    {"permute",
     "[[data, model], null]",
     {{"axes", Ints{1, 0}}, {"dim", int64_t{0}}},
     "[[model, data], null]"},
    {"reshard", "[data, null] sum(model)", {}, "[null, data]"},
};

TEST_CASE("Each collective makes its sharding of its operand's") {
  for (const Move& move : kMoves) {
    Sharded g;
    const ValueId x = g.partial("x", {8, 4}, move.from);
    g.lies(g.b.apply(move.op, {x}, move.attrs), move.to);
    CHECK_NOTHROW_MESSAGE(g.check(), move.op);
  }
}

TEST_CASE("A collective that claims another sharding is found") {
  for (const Move& move : kMoves) {
    if (move.op == "reshard") {
      continue;  // may claim any
    }
    Sharded g;
    const ValueId x = g.partial("x", {8, 4}, move.from);
    g.lies(g.b.apply(move.op, {x}, move.attrs), move.from);
    CHECK_THROWS_AS_MESSAGE(g.check(), InternalError, move.op);
  }
}

TEST_CASE_FIXTURE(Sharded, "Nothing becomes partial by resharding") {
  const ValueId x = input("x", {8, 4}, "[null, null]");
  lies(b.apply("reshard", {x}), "[null, null] sum(data)");
  CHECK_BROKEN("cannot become partial");
}

TEST_CASE_FIXTURE(Sharded, "A gather of axes that are not last is found") {
  const ValueId x = input("x", {8, 4}, "[[data, model], null]");
  lies(b.apply("all_gather", {x}, {{"axes", Ints{0}}, {"dim", int64_t{0}}}), "[model, null]");
  CHECK_BROKEN("does not end in these axes");
}

}  // namespace
}  // namespace meshtrain
