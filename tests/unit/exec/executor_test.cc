#include "exec/executor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "count_allocations.h"
#include "ir/ops/window.h"
#include "one_step.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

HostTensor random_tensor(DType dtype, const Shape& shape, uint64_t seed) {
  HostTensor x(dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, test::splitmix_signed(seed, static_cast<uint64_t>(i)));
  }
  return x;
}

Variable variable(std::string path, Shape shape, Sharding storage) {
  Variable v;
  v.path = std::move(path);
  v.shape = std::move(shape);
  v.layout.storage = std::move(storage);
  return v;
}

// relu(x w + b) with b in a variable, and w replaced by w - rate * (x^T y): the smallest step with
// products, a fused chain, a collective and an update in place.
struct SmallStep {
  DeviceMesh mesh{{4}, {"data"}};
  VariableStore store;
  Executor executor;
  HostTensor x = random_tensor(DType::kFloat32, {64, 48}, 1);

  static std::vector<Variable> variables() {
    std::vector<Variable> list = {variable("w", {48, 40}, Sharding::replicated(2)),
                                  variable("b", {40}, Sharding::replicated(1))};
    return list;
  }

  static Program program(const DeviceMesh& mesh) {
    ProgramBuilder builder(mesh);
    const DType f32 = DType::kFloat32;
    const Sharding rows{{{0}, {}}, 0, {}};
    const Sharding partial_sums{{{}, {}}, 1, {}};
    const Sharding whole = Sharding::replicated(2);
    const int x = builder.input({64, 48}, f32, rows);
    const int w = builder.buffer({48, 40}, f32, whole);
    const int b = builder.buffer({40}, f32, Sharding::replicated(1));
    builder.program().buffers[w].variable = 0;
    builder.program().buffers[b].variable = 1;
    const int product = builder.buffer({64, 40}, f32, rows);
    const int y = builder.buffer({64, 40}, f32, rows);
    const int partial = builder.buffer({48, 40}, f32, partial_sums);
    const int gradient = builder.buffer({48, 40}, f32, whole);
    const int rate = builder.buffer({}, f32, Sharding::replicated(0));
    const int fresh = builder.buffer({48, 40}, f32, whole);
    builder.program().buffers[fresh].variable = 0;
    builder.step("constant", {}, {rate}, {{"value", 0.01}});
    builder.step("einsum", {x, w}, {product}, {{"equation", std::string("bi,io->bo")}});
    builder.step("add", {product, b}, {y});
    FusedTape tape;
    tape.num_inputs = 2;
    tape.instructions = {{&find_op("add"), {0, 1}, {}, f32}, {&find_op("relu"), {2}, {}, f32}};
    tape.results = {1};
    builder.program().fusions.push_back(tape);
    builder.program().steps.back().fused = 0;
    builder.step("einsum", {x, y}, {partial}, {{"equation", std::string("bi,bo->io")}});
    builder.step("all_reduce", {partial}, {gradient});
    builder.step("optimizer_update", {w, gradient, rate}, {fresh}, {{"kind", std::string("sgd")}});
    builder.output(y);
    return builder.take();
  }

  explicit SmallStep(int workers)
      : store(mesh, variables()), executor(program(mesh), make_worker_pool(workers), store) {
    store.write(0, random_tensor(DType::kFloat32, {48, 40}, 2));
    store.write(1, random_tensor(DType::kFloat32, {40}, 3));
    executor.set_input(0, x.bytes(), x.num_bytes());
  }
};

TEST_CASE("a training step updates its variable in place") {
  SmallStep step(2);
  const HostTensor w = step.store.read(0);
  const HostTensor b = step.store.read(1);
  step.executor.run();
  const HostTensor y = step.executor.output(0);
  const HostTensor fresh = step.store.read(0);
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t c = 0; c < 40; ++c) {
      double sum = b.at(c);
      for (int64_t k = 0; k < 48; ++k)
        sum += step.x.at(r * 48 + k) * w.at(k * 40 + c);
      CHECK(y.at(r * 40 + c) == doctest::Approx(std::max(sum, 0.0)).epsilon(1e-5));
    }
  }
  for (int64_t i = 0; i < 48; ++i) {
    for (int64_t c = 0; c < 40; ++c) {
      double gradient = 0;
      for (int64_t r = 0; r < 64; ++r)
        gradient += step.x.at(r * 48 + i) * y.at(r * 40 + c);
      CHECK(fresh.at(i * 40 + c) ==
            doctest::Approx(w.at(i * 40 + c) - 0.01 * gradient).epsilon(1e-5));
    }
  }
}

TEST_CASE("many steps give the same bits with any number of workers") {
  HostTensor first;
  for (int workers : {1, 2, 3, 5}) {
    SmallStep step(workers);
    for (int i = 0; i < 20; ++i)
      step.executor.run();
    HostTensor w = step.store.read(0);
    if (workers == 1) {
      first = std::move(w);
    } else {
      CHECK(std::memcmp(first.bytes(), w.bytes(), w.num_bytes()) == 0);
    }
  }
}

TEST_CASE("a step allocates nothing") {
  SmallStep step(2);
  step.executor.run();
  const int64_t before = num_allocations();
  for (int i = 0; i < 5; ++i)
    step.executor.run();
  CHECK(num_allocations() == before);
}

// Blocks that each of some steps of a convolution and both its gradients takes.
std::vector<int64_t> allocations_of_convolution(DType dtype) {
  const Shape x_shape{8, 12, 12, 16}, kernel_shape{3, 3, 16, 32}, y_shape{8, 12, 12, 32};
  Attrs attrs;
  set_window(attrs, {{1, 1}, {1, 1}, {1, 1}, {1, 1}});
  ProgramBuilder builder(DeviceMesh{});
  const Sharding whole = Sharding::replicated(4);
  const int x = builder.input(x_shape, dtype, whole);
  const int kernel = builder.input(kernel_shape, dtype, whole);
  const int y = builder.buffer(y_shape, dtype, whole);
  const int dx = builder.buffer(x_shape, dtype, whole);
  const int dkernel = builder.buffer(kernel_shape, dtype, whole);
  builder.step("conv", {x, kernel}, {y}, attrs);
  attrs["shape"] = x_shape;
  builder.step("conv_dgrad", {y, kernel}, {dx}, attrs);
  attrs["shape"] = kernel_shape;
  builder.step("conv_wgrad", {x, y}, {dkernel}, attrs);
  builder.output(dx);
  builder.output(dkernel);
  VariableStore store(DeviceMesh{}, {});
  Executor executor(builder.take(), make_worker_pool(2), store);
  const HostTensor xv = random_tensor(dtype, x_shape, 6),
                   kv = random_tensor(dtype, kernel_shape, 7);
  executor.set_input(0, xv.bytes(), xv.num_bytes());
  executor.set_input(1, kv.bytes(), kv.num_bytes());
  executor.run();
  std::vector<int64_t> counts;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = num_allocations();
    executor.run();
    counts.push_back(num_allocations() - before);
  }
  return counts;
}

TEST_CASE("convolutions allocate nothing, but for what oneDNN takes in a call of its own") {
  for (int64_t count : allocations_of_convolution(DType::kFloat64))
    CHECK(count == 0);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::vector<int64_t> counts = allocations_of_convolution(dtype);
    for (int64_t count : counts) {
      CHECK(count == counts[0]);
      CHECK(count <= 3 * 8 * 8);  // of a call for each image in each of the steps
    }
  }
}

TEST_CASE("products of 16 bits allocate nothing, but for what oneDNN takes in a call of its own") {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    ProgramBuilder builder(DeviceMesh{});
    const Sharding whole = Sharding::replicated(2);
    const int a = builder.input({64, 300}, dtype, whole),
              b = builder.input({300, 80}, dtype, whole);
    const int c = builder.buffer({64, 80}, dtype, whole);
    builder.step("einsum", {a, b}, {c}, {{"equation", std::string("ij,jk->ik")}});
    builder.output(c);
    VariableStore store(DeviceMesh{}, {});
    Executor executor(builder.take(), make_worker_pool(2), store);
    executor.run();
    for (int i = 0; i < 3; ++i) {
      const int64_t before = num_allocations();
      executor.run();
      CHECK(num_allocations() - before <= (dtype == DType::kBFloat16 ? 8 : 0));
    }
  }
}

// y = tanh(a) * a + a and z = y * b, both where their operands were.
void check_in_place(DType dtype, int64_t n) {
  ProgramBuilder builder(DeviceMesh{});
  const Sharding whole = Sharding::replicated(1);
  const int a = builder.input({n}, dtype, whole);
  const int b = builder.input({n}, dtype, whole);
  const int y = builder.buffer({n}, dtype, whole);
  const int z = builder.buffer({n}, dtype, whole);
  builder.program().buffers[y].offset = builder.program().buffers[b].offset;
  builder.program().buffers[z].offset = builder.program().buffers[a].offset;
  FusedTape tape;
  tape.num_inputs = 2;
  tape.instructions = {{&find_op("tanh"), {0}, {}, dtype},
                       {&find_op("mul"), {2, 0}, {}, dtype},
                       {&find_op("add"), {3, 0}, {}, dtype},
                       {&find_op("mul"), {4, 1}, {}, dtype}};
  tape.results = {2, 3};
  builder.step("tanh", {a, b}, {y, z});
  builder.program().steps.back().fused = 0;
  builder.program().fusions.push_back(tape);
  builder.output(y);
  builder.output(z);
  VariableStore store(DeviceMesh{}, {});
  Executor executor(builder.take(), make_worker_pool(2), store);
  const HostTensor av = random_tensor(dtype, {n}, 4), bv = random_tensor(dtype, {n}, 5);
  executor.set_input(0, av.bytes(), av.num_bytes());
  executor.set_input(1, bv.bytes(), bv.num_bytes());
  executor.run();
  const HostTensor yv = executor.output(0), zv = executor.output(1);
  const double limit = dtype == DType::kFloat32 ? 1e-6 : dtype == DType::kFloat16 ? 2e-3 : 2e-2;
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double want = std::tanh(av.at(i)) * av.at(i) + av.at(i);
    wrong += std::abs(yv.at(i) - want) > limit || std::abs(zv.at(i) - want * bv.at(i)) > limit;
  }
  CHECK(wrong == 0);
}

TEST_CASE("results may take the place of operands that later instructions read") {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (int64_t n : {1, 7, 13, 1024, 5000, 1000003})
      check_in_place(dtype, n);
  }
}

TEST_CASE("sums of a million terms keep the accuracy of float32") {
  for (int64_t n : {1, 7, 13, 4099, 1000003}) {
    for (const Shape& shape : {Shape{n}, Shape{n, 3}, Shape{3, n}}) {
      if (num_elements(shape) > 1100000)
        continue;
      for (int workers : {1, 3}) {
        ProgramBuilder builder(DeviceMesh{});
        const int x = builder.input(shape, DType::kFloat32, Sharding::replicated(shape.size()));
        const int sum = builder.buffer({}, DType::kFloat32, Sharding::replicated(0));
        std::vector<int64_t> axes;
        for (size_t d = 0; d < shape.size(); ++d)
          axes.push_back(static_cast<int64_t>(d));
        builder.step("reduce_sum", {x}, {sum}, {{"axes", axes}, {"keepdims", int64_t{0}}});
        builder.output(sum);
        VariableStore store(DeviceMesh{}, {});
        Executor executor(builder.take(), make_worker_pool(workers), store);
        HostTensor values(DType::kFloat32, shape);
        double want = 0;
        for (int64_t i = 0; i < values.size(); ++i) {
          values.set(i, 1 + test::splitmix_unit(3, static_cast<uint64_t>(i)));
          want += values.at(i);
        }
        executor.set_input(0, values.bytes(), values.num_bytes());
        executor.run();
        CHECK(std::abs(executor.output_scalar(0) / want - 1) < 1e-6);
      }
    }
  }
}

TEST_CASE("variables are scattered to their shards and gathered again") {
  const DeviceMesh mesh({2, 4}, {"data", "model"});
  const std::vector<Sharding> layouts = {
      Sharding::replicated(2), {{{0}, {1}}, 0, {}}, {{{1, 0}, {}}, 0, {}}, {{{}, {0, 1}}, 0, {}}};
  std::vector<Variable> variables;
  for (const Sharding& layout : layouts)
    variables.push_back(variable("v", {16, 24}, layout));
  variables[2].path = "third";
  VariableStore store(mesh, variables);
  CHECK(store.find("third") == 2);
  CHECK(store.find("fourth") == kNone);
  CHECK(store.shard_bytes(1) == 16 * 24 * 4 / 8);
  CHECK(store.total_bytes() == 4 * 16 * 24 * 4);
  const HostTensor x = random_tensor(DType::kFloat32, {16, 24}, 6);
  for (int v = 0; v < 4; ++v) {
    store.write(v, x);
    const HostTensor back = store.read(v);
    CHECK(std::memcmp(back.bytes(), x.bytes(), x.num_bytes()) == 0);
  }
  // Shard 1 of the second layout: rows 0..7, columns 6..11.
  const float* shard = reinterpret_cast<const float*>(store.data(1) + store.shard_bytes(1));
  CHECK(shard[0] == x.data<float>()[6]);
  CHECK(shard[6] == x.data<float>()[24 + 6]);
  store.fill(1, 2.5);
  CHECK(store.read(1).at(100) == 2.5);
  CHECK_THROWS_AS(store.write(0, HostTensor(DType::kFloat32, {16, 23})), InternalError);
}

TEST_CASE("inputs split over their rows can be written in place") {
  const DeviceMesh mesh({2, 2}, {"data", "model"});
  ProgramBuilder builder(mesh);
  const int rows = builder.input({8, 4}, DType::kFloat32, {{{0, 1}, {}}, 0, {}});
  const int columns = builder.input({8, 4}, DType::kFloat32, {{{}, {1}}, 0, {}});
  const int swapped = builder.input({8, 4}, DType::kFloat32, {{{1, 0}, {}}, 0, {}});
  for (int b : {rows, columns, swapped})
    builder.output(b);
  VariableStore store(mesh, {});
  Executor executor(builder.take(), make_worker_pool(1), store);
  CHECK(executor.input_data(0) != nullptr);
  CHECK(executor.input_data(1) == nullptr);
  CHECK(executor.input_data(2) == nullptr);
  const HostTensor x = random_tensor(DType::kFloat32, {8, 4}, 8);
  std::memcpy(executor.input_data(0), x.bytes(), x.num_bytes());
  executor.set_input(1, x.bytes(), x.num_bytes());
  executor.set_input(2, x.bytes(), x.num_bytes());
  executor.run();
  for (int i = 0; i < 3; ++i) {
    const HostTensor back = executor.output(i);
    CHECK(std::memcmp(back.bytes(), x.bytes(), x.num_bytes()) == 0);
  }
  CHECK_THROWS_AS(executor.set_input(0, x.bytes(), 3), InternalError);
}

TEST_CASE("NaN and infinity pass through") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* op : {"relu", "max", "min", "reduce_max", "reduce_min", "reduce_sum"}) {
    ProgramBuilder builder(DeviceMesh{});
    const std::string_view name = op;
    const bool reduces = name.substr(0, 6) == "reduce";
    const int x = builder.input({40}, DType::kFloat32, Sharding::replicated(1));
    const int y = builder.input({40}, DType::kFloat32, Sharding::replicated(1));
    const int out = builder.buffer(reduces ? Shape{} : Shape{40}, DType::kFloat32,
                                   Sharding::replicated(reduces ? 0 : 1));
    std::vector<int> operands = {x};
    if (name == "max" || name == "min")
      operands.push_back(y);
    Attrs attrs;
    if (reduces)
      attrs = {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}};
    builder.step(op, operands, {out}, attrs);
    builder.output(out);
    VariableStore store(DeviceMesh{}, {});
    Executor executor(builder.take(), make_worker_pool(1), store);
    for (int where : {0, 17, 39}) {
      std::vector<float> values(40, 1.0F), zeros(40, 0.0F);
      values[static_cast<size_t>(where)] = nan;
      values[5] = infinity;
      executor.set_input(0, values.data(), 160);
      executor.set_input(1, zeros.data(), 160);
      executor.run();
      CHECK(std::isnan(executor.output(0).at(reduces ? 0 : where)));
      if (!reduces && name != "min")
        CHECK(executor.output(0).at(5) == infinity);
    }
  }
}

}  // namespace
}  // namespace meshtrain::testing
