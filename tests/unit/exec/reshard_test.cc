// The collectives on data: any sharding to any other, partial sums included.
#include "mesh/reshard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "one_step.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

HostTensor numbers(const Shape& shape, uint64_t seed) {
  HostTensor x(DType::kFloat64, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(test::splitmix_below(seed, static_cast<uint64_t>(i), 1000)));
  }
  return x;
}

std::vector<Sharding> all_shardings(const Shape& shape, const DeviceMesh& mesh) {
  std::vector<AxisList> lists = {{}};
  for (int a = 0; a < mesh.num_axes(); ++a) {
    lists.push_back({a});
    for (int b = 0; b < mesh.num_axes(); ++b) {
      if (a != b)
        lists.push_back({a, b});
    }
  }
  std::vector<Sharding> out;
  for (const AxisList& first : lists) {
    for (const AxisList& second : lists) {
      for (AxisMask partial = 0; partial < (AxisMask{1} << mesh.num_axes()); ++partial) {
        const Sharding s{{first, second}, partial, Combine::kSum};
        if (!sharding_problem(s, shape, mesh))
          out.push_back(s);
      }
    }
  }
  return out;
}

std::string_view op_of(MoveKind kind) {
  return kind == MoveKind::kSlice ? "shard_slice" : move_name(kind);
}

// from -> to by the planner's moves, or in one step called "reshard".
HostTensor move(const HostTensor& x, const Sharding& from, const Sharding& to,
                const DeviceMesh& mesh, bool in_one_step, int workers) {
  ProgramBuilder builder(mesh);
  const Shape& shape = x.shape();
  // A partial operand comes from a sum over leading dimensions that are split over those axes.
  Shape wide = shape;
  Sharding wide_sharding{from.dims, 0, Combine::kSum};
  std::vector<int64_t> sum_axes;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if ((from.partial >> axis & 1u) == 0)
      continue;
    wide.insert(wide.begin(), mesh.axis_size(axis));
    wide_sharding.dims.insert(wide_sharding.dims.begin(), AxisList{axis});
    sum_axes.push_back(static_cast<int64_t>(sum_axes.size()));
  }
  int value = builder.input(wide, DType::kFloat64, wide_sharding);
  if (!sum_axes.empty()) {
    const int partial = builder.buffer(shape, DType::kFloat64, from);
    builder.step("reduce_sum", {value}, {partial}, {{"axes", sum_axes}, {"keepdims", int64_t{0}}});
    value = partial;
  }
  if (!in_one_step && from.partial != 0) {
    // A reader that needs the terms: without it the sum above would add up all shards itself.
    const int copy = builder.buffer(shape, DType::kFloat64, from);
    builder.step("pin", {value}, {copy}, {{"key", std::string("x/output")}});
    value = copy;
  }
  if (in_one_step) {
    const int next = builder.buffer(shape, DType::kFloat64, to);
    builder.step("reshard", {value}, {next});
    value = next;
  } else {
    for (const ReshardMove& step : plan_reshard(from, to, shape, DType::kFloat64, mesh)) {
      const int next = builder.buffer(shape, DType::kFloat64, step.result);
      builder.step(op_of(step.kind), {value}, {next});
      value = next;
    }
  }
  builder.output(value);
  VariableStore store(mesh, {});
  Executor executor(builder.take(), make_worker_pool(workers), store);
  HostTensor terms(DType::kFloat64, wide);
  const int64_t num_terms = terms.size() / x.size();
  for (int64_t t = 0; t < num_terms; ++t) {
    for (int64_t i = 0; i < x.size(); ++i) {
      terms.set(t * x.size() + i, x.at(i) * static_cast<double>(t + 1));
    }
  }
  executor.set_input(0, terms.bytes(), terms.num_bytes());
  executor.run();
  HostTensor out = executor.output(0);
  const double scale = static_cast<double>(num_terms * (num_terms + 1)) / 2;
  for (int64_t i = 0; i < out.size(); ++i)
    out.set(i, out.at(i) / scale);
  return out;
}

bool is_equal(const HostTensor& a, const HostTensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
}

TEST_CASE("any sharding becomes any other without changing the value") {
  const DeviceMesh mesh({2, 4}, {"data", "model"});
  const Shape shape = {16, 24};
  const HostTensor x = numbers(shape, 7);
  const std::vector<Sharding> shardings = all_shardings(shape, mesh);
  REQUIRE(shardings.size() > 10);
  for (const Sharding& from : shardings) {
    for (const Sharding& to : shardings) {
      if ((to.partial & ~from.partial) != 0)
        continue;
      const std::string what = sharding_string(from, mesh) + " -> " + sharding_string(to, mesh);
      CHECK_MESSAGE(is_equal(move(x, from, to, mesh, false, 2), x), what);
      CHECK_MESSAGE(is_equal(move(x, from, to, mesh, true, 3), x), what << " in one step");
    }
  }
}

TEST_CASE("three axes and large tensors are moved by several workers") {
  const DeviceMesh mesh({2, 2, 2}, {"a", "b", "c"});
  const Shape shape = {512, 1024};
  const HostTensor x = numbers(shape, 9);
  const std::vector<Sharding> shardings = {Sharding::replicated(2),
                                           {{{0}, {1, 2}}, 0, {}},
                                           {{{2, 0}, {}}, 2, {}},
                                           {{{}, {0}}, 6, {}},
                                           {{{0, 1, 2}, {}}, 0, {}}};
  for (const Sharding& from : shardings) {
    for (const Sharding& to : shardings) {
      if ((to.partial & ~from.partial) != 0)
        continue;
      CHECK(is_equal(move(x, from, to, mesh, true, 2), x));
    }
  }
}

TEST_CASE("partial maxima and minima keep the right one") {
  const DeviceMesh mesh({4}, {"data"});
  for (Combine combine : {Combine::kMax, Combine::kMin}) {
    ProgramBuilder builder(mesh);
    const int x = builder.input({4, 6}, DType::kFloat32, {{{0}, {}}, 0, {}});
    const int partial = builder.buffer({6}, DType::kFloat32, {{{}}, 1, combine});
    builder.step(combine == Combine::kMax ? "reduce_max" : "reduce_min", {x}, {partial},
                 {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}});
    builder.output(partial);
    VariableStore store(mesh, {});
    Executor executor(builder.take(), make_worker_pool(2), store);
    const std::vector<float> values = {1, -2, 3, -4, 5, 6, 9, -8, 7, 0, 1, 2,
                                       3, 3,  3, 3,  3, 3, 0, 0,  0, 0, 0, 9};
    executor.set_input(0, values.data(), values.size() * sizeof(float));
    executor.run();
    const HostTensor out = executor.output(0);
    for (int64_t c = 0; c < 6; ++c) {
      float want = values[c];
      for (int64_t r = 1; r < 4; ++r) {
        const float v = values[r * 6 + c];
        want = combine == Combine::kMax ? std::max(want, v) : std::min(want, v);
      }
      CHECK(out.at(c) == want);
    }
  }
}

}  // namespace
}  // namespace meshtrain::testing
