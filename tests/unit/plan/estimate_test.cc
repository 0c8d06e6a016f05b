// The time line of a step: what runs beside what, and that the parts add up.
#include <doctest/doctest.h>

#include "ir/op.h"
#include "plan/plan_summary.h"

using namespace meshtrain;

namespace {

// Products of 1 TFLOP/s, memory of 1 TB/s, links of 1 GB/s without latency.
Hardware simple() {
  Hardware h;
  h.name = "simple";
  h.memory = 1 << 30;
  h.memory_rate = 1e12;
  h.peak.fill(2e12);
  h.matmul.fill(1e12);
  h.kernel = 1e-6;
  h.per_host = 8;
  h.link_rate = 1e9;
  h.network_rate = 1e9;
  h.share = {1, 1, 1};
  h.tree_share = 1;
  return h;
}

// An all_reduce of 4 MB over two devices sends them, and first copies them, a kernel.
constexpr double kReduce = 4e-3 + 1e-6 + 8e-6;

// Steps between buffers of 1000 x 1000 float32 (4 MB) on a mesh of two.
struct Steps {
  Program program;
  std::vector<PlannedCollective> collectives;

  Steps() { program.part = DeviceMesh({2}, {"data"}); }

  int buffer() {
    Buffer b;
    b.shape = b.global_shape = {1000, 1000};
    b.sharding = Sharding::replicated(2);
    b.shard_bytes = 4'000'000;
    program.buffers.push_back(b);
    return static_cast<int>(program.buffers.size()) - 1;
  }
  // 2e9 operations: 2 ms, and 1 us for begin and end.
  int product(int a, int b) {
    return add("einsum", {a, b}, {{"equation", std::string("ij,jk->ik")}});
  }
  // 12 MB: 12 us, and 1 us.
  int sum(int a, int b) { return add("add", {a, b}); }
  // Of 4 MB over two devices: gathers of 8 MB and all_reduces send 4 MB, 4 ms.
  int call(const char* kind, int a) {
    PlannedCollective c;
    c.kind = *find_op(kind).move;
    c.axes = {"data"};
    c.group_size = 2;
    c.bytes = c.bytes_sent = 4'000'000;
    collectives.push_back(c);
    return add(kind, {a});
  }
  int add(const char* op, std::vector<int> inputs, Attrs attrs = {}) {
    ProgramStep step;
    step.op = &find_op(op);
    step.inputs = std::move(inputs);
    step.outputs = {buffer()};
    step.attrs = std::move(attrs);
    program.steps.push_back(std::move(step));
    return program.steps.back().outputs[0];
  }
  Estimate estimate(const Hardware& hardware, int64_t memory = 0, bool fixed = false,
                    double launch_share = 1) const {
    return estimate_step({.program = program,
                          .mesh = program.part.mesh(),
                          .collectives = collectives,
                          .batch = 10,
                          .memory = memory,
                          .flops = 8e9,
                          .model_flops = 8e9,
                          .fixed_reductions = fixed,
                          .launch_share = launch_share,
                          .advice = "less of it"},
                         hardware);
  }
};

void check_sums(const Estimate& e) {
  CHECK(e.step == doctest::Approx(e.compute + e.memory + e.launch + e.exposed + e.jitter));
  double communication = 0, exposed = 0;
  for (const EstimatedCall& call : e.calls) {
    CHECK(call.exposed >= 0);
    CHECK(call.exposed <= call.seconds * (1 + 1e-12));
    communication += call.seconds;
    exposed += call.exposed;
  }
  CHECK(e.communication == doctest::Approx(communication));
  CHECK(e.exposed == doctest::Approx(exposed));
  CHECK(e.samples_per_second == doctest::Approx(10 / e.step));
}

}  // namespace

TEST_CASE("kernels take their products or their bytes and a begin and end each") {
  Steps s;
  const int a = s.buffer();
  s.sum(s.product(a, a), a);
  const Estimate e = s.estimate(simple());
  CHECK(e.compute == doctest::Approx(2e-3));
  CHECK(e.memory == doctest::Approx(12e-6));
  CHECK(e.launch == doctest::Approx(2e-6));
  CHECK(e.kernels == 2);
  CHECK(e.exposed == 0);
  CHECK(e.bound == "compute");
  check_sums(e);
  // 8e9 operations on two devices of 2 TFLOP/s.
  CHECK(e.mfu == doctest::Approx(8e9 / e.step / 4e12));
}

TEST_CASE("a kernel that is part of another takes no begin and end of its own") {
  Steps s;
  const int a = s.buffer();
  for (int i = 0; i < 9; ++i) {
    s.sum(a, a);
  }
  const Estimate e = s.estimate(simple(), 0, false, 1.0 / 3);
  CHECK(e.kernels == 3);
  CHECK(e.launch == doctest::Approx(3e-6));
  CHECK(e.memory == doctest::Approx(9 * 12e-6));
  check_sums(e);
}

TEST_CASE("float32 products are TF32 on a GPU alone") {
  Steps s;
  s.product(s.buffer(), s.buffer());
  Hardware hardware = simple();
  hardware.matmul[static_cast<size_t>(MatmulType::kFloat32)] = 1e11;
  CHECK(s.estimate(hardware).products == MatmulType::kTf32);
  CHECK(s.estimate(hardware).compute == doctest::Approx(2e-3));
  hardware.is_virtual = true;
  CHECK(s.estimate(hardware).products == MatmulType::kFloat32);
  CHECK(s.estimate(hardware).compute == doctest::Approx(20e-3));
}

TEST_CASE("a wait is charged to all collectives that were in the queue") {
  Steps s;
  const int a = s.buffer();
  const int first = s.call("all_reduce", a), second = s.call("all_reduce", a);
  s.sum(second, first);
  const Estimate e = s.estimate(simple());
  REQUIRE(e.calls.size() == 2);
  CHECK(e.calls[0].exposed == doctest::Approx(kReduce));
  CHECK(e.calls[1].exposed == doctest::Approx(kReduce));
  check_sums(e);
}

TEST_CASE("a collective runs beside kernels that do not need it") {
  Steps s;
  const int a = s.buffer();
  const int reduced = s.call("all_reduce", s.product(a, a));
  const int other = s.product(a, a);
  s.sum(reduced, other);
  const Estimate e = s.estimate(simple());
  // From the first product's end; the second one, 2.001 ms, runs meanwhile.
  CHECK(e.communication == doctest::Approx(kReduce));
  CHECK(e.exposed == doctest::Approx(kReduce - 2.001e-3));
  CHECK(e.calls[0].exposed == doctest::Approx(e.exposed));
  check_sums(e);
}

TEST_CASE("a collective whose result the next kernel reads is not hidden") {
  Steps s;
  const int a = s.buffer();
  s.sum(s.call("all_reduce", s.product(a, a)), a);
  const Estimate e = s.estimate(simple());
  CHECK(e.exposed == doctest::Approx(kReduce));
  CHECK(e.bound == "network");
  check_sums(e);
}

TEST_CASE("a collective at the end of the step is waited for") {
  Steps s;
  const int a = s.buffer();
  s.call("reduce_scatter", s.product(a, a));
  const Estimate e = s.estimate(simple());
  CHECK(e.exposed == doctest::Approx(2e-3));  // half of 4 MB
  check_sums(e);
}

TEST_CASE("weights are fetched while the layer before computes and not earlier") {
  // Three layers, each of a gathered weight: 4 ms a gather, 2.001 ms a product.
  Steps s;
  int x = s.buffer();
  for (int i = 0; i < 3; ++i) {
    x = s.product(x, s.call("all_gather", s.buffer()));
  }
  const Estimate e = s.estimate(simple());
  // The first is waited for. The second begins when the first product does, and so on.
  CHECK(e.calls[0].exposed == doctest::Approx(4e-3));
  CHECK(e.calls[1].exposed == doctest::Approx(4e-3 - 2.001e-3));
  CHECK(e.calls[2].exposed == doctest::Approx(4e-3 - 2.001e-3));
  check_sums(e);
}

TEST_CASE("a gathered weight that arrives before it is needed costs nothing") {
  Steps s;
  const int a = s.buffer();
  int x = s.product(a, s.call("all_gather", s.buffer()));
  for (int i = 0; i < 4; ++i) {
    x = s.product(x, x);
  }
  s.product(x, s.call("all_gather", s.buffer()));
  const Estimate e = s.estimate(simple());
  CHECK(e.calls[0].exposed == doctest::Approx(4e-3));
  CHECK(e.calls[1].exposed == 0);
  check_sums(e);
}

TEST_CASE("reductions are those of the run and tensors that do not divide go apart") {
  Steps s;
  const int a = s.buffer();
  s.call("all_reduce", s.product(a, a));
  // An exchange and a gather of 2 ms each, and the sum between them: 1 us and 6 MB.
  const Estimate fixed = s.estimate(simple(), 0, true);
  CHECK(fixed.calls[0].algorithm == "direct, ring LL");
  CHECK(fixed.calls[0].seconds == doctest::Approx(4e-3 + 7e-6));
  CHECK(s.estimate(simple()).calls[0].seconds == doctest::Approx(kReduce));
  CHECK(fixed.notes.empty());
  // With a bias of three elements, which no two devices share equally.
  const int bias = s.buffer(), sum = s.buffer();
  for (const int b : {bias, sum}) {
    s.program.buffers[static_cast<size_t>(b)].shape = {3};
    s.program.buffers[static_cast<size_t>(b)].shard_bytes = 12;
  }
  s.program.steps.back().inputs.push_back(bias);
  s.program.steps.back().outputs.push_back(sum);
  s.collectives[0].bytes += 12;
  const Estimate uneven = s.estimate(simple(), 0, true);
  CHECK(uneven.calls[0].algorithm == "direct, ring LL, direct");
  // Copied together: half of them; apart: all of them; and six kernels.
  CHECK(uneven.calls[0].seconds == doctest::Approx(4e-3 + 6e-6 + 4e-6 + 8e-6 + 6e-6).epsilon(1e-5));
}

TEST_CASE("fixed sums that slow a step down are named") {
  Steps s;
  s.call("all_reduce", s.product(s.buffer(), s.buffer()));
  Hardware slow = simple();
  slow.ring_start.fill(3e-3);
  slow.tree_start = slow.ring_start;
  const Estimate e = s.estimate(slow, 0, true);
  REQUIRE(e.notes.size() == 1);  // two starts instead of one
  CHECK(e.notes[0].find("fixed sums take 3.00 ms longer") != std::string::npos);
  CHECK(s.estimate(slow).notes.empty());
}

TEST_CASE("gathers along an inner dimension are copied to their places") {
  Steps s;
  const int shard = s.buffer();
  s.call("all_gather", shard);
  const auto seconds = [&](int dimension) {
    Buffer& from = s.program.buffers[static_cast<size_t>(shard)];
    from.sharding = Sharding::replicated(2);
    from.sharding.dims[static_cast<size_t>(dimension)] = {0};
    return s.estimate(simple()).calls[0].seconds;
  };
  CHECK(seconds(0) == doctest::Approx(4e-3));
  CHECK(seconds(1) == doctest::Approx(4e-3 + 2e-6 + 24e-6));
}

TEST_CASE("on virtual devices a collective is work of the same processor") {
  Hardware cpu = simple();
  cpu.is_virtual = true;
  Steps s;
  const int a = s.buffer();
  const int reduced = s.call("all_reduce", s.product(a, a));
  s.sum(reduced, s.product(a, a));
  const Estimate e = s.estimate(cpu);
  CHECK(e.communication == doctest::Approx(8e-6));  // 8 MB read and written
  CHECK(e.exposed == doctest::Approx(e.communication));
  check_sums(e);
}

TEST_CASE("what does not fit is said and so is an axis on slow links") {
  Steps s;
  s.product(s.buffer(), s.buffer());
  CHECK(s.estimate(simple(), 1 << 30).fits);
  const Estimate e = s.estimate(simple(), (1 << 30) + 1);
  CHECK_FALSE(e.fits);
  REQUIRE(e.notes.size() == 1);
  CHECK(e.notes[0].find("needs 1.0 GiB and has 1.0 GiB: less of it") != std::string::npos);

  Steps slow;
  slow.program.part = DeviceMesh({2, 8}, {"model", "data"});
  slow.call("all_reduce", slow.product(slow.buffer(), slow.buffer()));
  slow.collectives[0].axes = {"model"};
  const Estimate across = slow.estimate(simple());
  CHECK(across.hosts == 2);
  REQUIRE(across.notes.size() == 1);
  CHECK(across.notes[0].find("put `model` last") != std::string::npos);
}

TEST_CASE("one device that is faster is named") {
  Steps s;
  s.product(s.buffer(), s.buffer());
  Estimate e = s.estimate(simple());
  compare_with_one_device(e, e.step * 2);
  CHECK(e.notes.empty());
  compare_with_one_device(e, e.step / 2);
  REQUIRE(e.notes.size() == 1);
  CHECK(e.notes[0].find("2 devices are 2.0 times slower") != std::string::npos);
}
