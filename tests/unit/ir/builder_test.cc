#include "ir/builder.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/hash.h"
#include "ir/op.h"

namespace meshtrain {
namespace {

struct Fixture {
  Graph graph;
  Builder b{graph};
  ValueId x = b.input("x", {4, 6}, DType::kFloat32, true);
};

TEST_CASE_FIXTURE(Fixture, "Paths are scoped and unique") {
  {
    const auto outer = b.scope("d1");
    b.neg(x);
    const auto inner = b.scope("act");
    b.neg(x);
    b.neg(x);
  }
  const ValueId last = b.neg(x);
  CHECK(graph.nodes[1].path == "d1/neg");
  CHECK(graph.nodes[2].path == "d1/act/neg");
  CHECK(graph.nodes[3].path == "d1/act/neg_1");
  CHECK(graph.producer(last).path == "neg");
}

TEST_CASE_FIXTURE(Fixture, "A second builder does not give paths again") {
  b.neg(x);
  Builder second(graph);
  CHECK(graph.producer(second.neg(x)).path == "neg_1");
  verify(graph);
}

TEST_CASE_FIXTURE(Fixture, "A layer called as a numbered path does not collide with it") {
  b.neg(x);
  b.set_scope_path("neg_1");
  b.set_scope_path("");
  b.neg(x);
  {
    const auto scope = b.scope("neg_1");
    b.neg(x);
  }
  verify(graph);
}

TEST_CASE_FIXTURE(Fixture, "A parameter is read once") {
  const int w = b.add_variable({.path = "w", .shape = {2}});
  const ValueId first = b.parameter(w);
  CHECK(b.parameter(w) == first);
  CHECK(Builder(graph).parameter(w) == first);
  CHECK_THROWS_AS(b.parameter(1), InternalError);
}

TEST_CASE_FIXTURE(Fixture, "What changes nothing adds no node") {
  const size_t before = graph.nodes.size();
  CHECK(b.reshape(x, {4, 6}) == x);
  CHECK(b.cast(x, DType::kFloat32) == x);
  CHECK(b.broadcast_to(x, {4, 6}) == x);
  CHECK(b.slice(x, 0, 0, 4) == x);
  CHECK(b.pad(x, 1, 0, 0) == x);
  CHECK(b.concat({x}, 0) == x);
  CHECK(b.reduce_sum(x, {}) == x);
  CHECK(graph.nodes.size() == before);
}

TEST_CASE_FIXTURE(Fixture, "Negative axes count from the end") {
  CHECK(b.shape(b.reduce_sum(x, {-1})) == Shape{4});
  CHECK(b.shape(b.reduce_max(x, {-2}, true)) == Shape{1, 6});
  CHECK(b.shape(b.expand_dims(x, -1)) == Shape{4, 6, 1});
  CHECK(b.shape(b.squeeze(b.expand_dims(x, 0), -3)) == Shape{4, 6});
  CHECK(b.shape(b.argmax(x, -1)) == Shape{4});
  CHECK(b.shape(b.slice(x, -1, 1, 6, 2)) == Shape{4, 3});
  CHECK_THROWS_AS(b.reduce_sum(x, {2}), InternalError);
  CHECK_THROWS_AS(b.reduce_sum(x, {1, -1}), InternalError);
}

TEST_CASE_FIXTURE(Fixture, "Random ops take their stream from their path") {
  const ValueId step = b.input("step", {}, DType::kInt64, false);
  const auto scope = b.scope("drop");
  const Node first = graph.producer(b.dropout(x, 0.5, step, 1));
  const Node second = graph.producer(b.dropout(x, 0.5, step, 1));
  const auto stream = static_cast<int64_t>(hash_text("drop/dropout") & 0xffffffffu);
  CHECK(first.attr_int("stream") == stream);
  CHECK(second.attr_int("stream") != stream);
}

TEST_CASE_FIXTURE(Fixture, "Operands that do not fit are found with the node's path") {
  const auto scope = b.scope("d1");
  const ValueId other = b.input("o", {5, 6}, DType::kFloat32, true);
  const ValueId wide = b.input("w", {4, 6}, DType::kFloat64, true);
  const ValueId ids = b.input("i", {4}, DType::kInt32, true);
  CHECK_THROWS_WITH_AS(b.add(x, other), doctest::Contains("d1/add (add)"), InternalError);
  CHECK_THROWS_AS(b.add(x, wide), InternalError);
  CHECK_THROWS_AS(b.exp(ids), InternalError);
  CHECK_THROWS_AS(b.select(x, x, x), InternalError);
  CHECK_THROWS_AS(b.reshape(x, {5, 5}), InternalError);
  CHECK_THROWS_AS(b.transpose(x, {0, 0}), InternalError);
  CHECK_THROWS_AS(b.broadcast_to(x, {6, 4}), InternalError);
  CHECK_THROWS_AS(b.slice(x, 1, 4, 3), InternalError);
  CHECK_THROWS_AS(b.concat({x, other}, 1), InternalError);
  CHECK_THROWS_AS(b.top_k(x, 7), InternalError);
  CHECK_THROWS_AS(b.gather_rows(x, wide), InternalError);
  CHECK_THROWS_AS(b.scatter_add_rows(x, b.cast(other, DType::kInt32), 3), InternalError);
  CHECK_THROWS_AS(b.optimizer_update("sgd", {x, wide, x}, {}), InternalError);
  CHECK_THROWS_AS(b.optimizer_update("magic", {x, x, x}, {}), InternalError);
  CHECK_THROWS_AS(b.apply("top_k", {x}, {{"k", int64_t{2}}}), InternalError);
  CHECK_THROWS_AS(b.apply("no_such_op", {x}), InternalError);
}

TEST_CASE_FIXTURE(Fixture, "Einsum equations are checked") {
  const ValueId w = b.input("w", {6, 2}, DType::kFloat32, false);
  CHECK(b.shape(b.einsum("bi, io -> bo", {x, w})) == Shape{4, 2});
  CHECK_THROWS_AS(b.einsum("bi,io", {x, w}), InternalError);
  CHECK_THROWS_AS(b.einsum("bb->b", {x}), InternalError);
  CHECK_THROWS_AS(b.einsum("bi->bz", {x}), InternalError);
  CHECK_THROWS_AS(b.einsum("bi,oi->bo", {x, w}), InternalError);
  CHECK_THROWS_AS(b.einsum("bi,io->bo", {x}), InternalError);
  CHECK_THROWS_AS(b.einsum("...i,io->bo", {x, w}), InternalError);
}

TEST_CASE_FIXTURE(Fixture, "A product costs two operations per multiplication") {
  const ValueId w = b.input("w", {6, 2}, DType::kFloat32, false);
  CHECK(flops(graph, graph.producer(b.einsum("bi,io->bo", {x, w}))) == 2 * 4 * 6 * 2);
  CHECK(flops(graph, graph.producer(b.neg(x))) == 24);
  CHECK(flops(graph, graph.producer(b.reduce_sum_all(x))) == 24);
  CHECK(flops(graph, graph.producer(b.reshape(x, {24}))) == 0);
}

TEST_CASE("The loss must be a floating-point scalar") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {3}, DType::kFloat32, true);
  const ValueId wrt[] = {x};
  CHECK_THROWS_AS(gradients(b, x, wrt), InternalError);
}

}  // namespace
}  // namespace meshtrain
