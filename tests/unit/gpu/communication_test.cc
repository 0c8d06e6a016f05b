// What devices of several processes do together: on emulated GPUs, whose processes are threads.
#include <doctest/doctest.h>

#include <numeric>
#include <thread>

#include "backend/gpu/lowering.h"
#include "backend/gpu/merge_launches.h"
#include "backend/gpu/self_test.h"
#include "base/error.h"
#include "gpu_device.h"
#include "support/instrumented.h"
#include "support/random_steps.h"
#include "support/sampled.h"
#include "support/thread_group.h"

namespace meshtrain::test {
namespace {

using gpu::Call;
using gpu::Command;
using meshtrain::testing::compare_tensors;
using meshtrain::testing::Layout;
using meshtrain::testing::LayoutCase;
using meshtrain::testing::Place;
using meshtrain::testing::Random;
using meshtrain::testing::random_graph_step;
using meshtrain::testing::random_layout;
using meshtrain::testing::run_layout;
using meshtrain::testing::Tensors;

// --- order ------------------------------------------------------------------------------------

std::byte* memory_at(int64_t offset) {
  return reinterpret_cast<std::byte*>((int64_t{1} << 44) + offset);
}

Access range(int64_t begin, int64_t end, bool is_write) {
  return {memory_at(begin), memory_at(end), is_write};
}

Command tiny(std::vector<Access> accesses) {
  gpu::Launch out;
  out.body = gpu::make_body("kind", "text", 0, false);
  out.args = {1};
  out.work = 10;
  return {std::move(out), std::move(accesses), "tiny"};
}

Command exchange(int64_t send, int64_t receive) {
  return {ExchangeSpec{{{1, memory_at(send), 256}}, {{1, memory_at(receive), 256}}},
          {range(send, send + 256, false), range(receive, receive + 256, true)},
          "exchange"};
}

Command product(std::vector<Access> accesses) {
  return {gpu::Matmul{}, std::move(accesses), "matmul"};
}

// Whether call `later` has to wait for call `earlier`, directly or not.
bool waits(const std::vector<Call>& calls, size_t later, size_t earlier) {
  const std::vector<int>& after = calls[later].after;
  return std::any_of(after.begin(), after.end(), [&](int before) {
    const size_t b = static_cast<size_t>(before);
    return b == earlier || (b > earlier && waits(calls, b, earlier));
  });
}

size_t call_of(const std::vector<Call>& calls, int command) {
  for (size_t c = 0; c < calls.size(); ++c) {
    const std::vector<int>& commands = calls[c].commands;
    if (std::find(commands.begin(), commands.end(), command) != commands.end())
      return c;
  }
  FAIL("no call computes command " << command);
  return 0;
}

TEST_CASE("communications wait for their data and for each other and for nothing else") {
  const std::vector<Call> calls = gpu::merge_launches({product({range(0, 256, true)}),      // 0
                                                       exchange(0, 256),                    // 1
                                                       product({range(1024, 2048, true)}),  // 2
                                                       exchange(4096, 8192),                // 3
                                                       product({range(256, 512, false),     // 4
                                                                range(2048, 4096, true)})})
                                      .calls;
  REQUIRE(calls.size() == 5);
  CHECK(waits(calls, 1, 0));
  CHECK(calls[2].after.empty());
  CHECK(calls[3].after == std::vector<int>{1});
  CHECK(calls[4].after == std::vector<int>{1});
}

TEST_CASE("tiny launches are not joined over a communication that only some of them wait for") {
  const std::vector<Call> calls =
      gpu::merge_launches({exchange(0, 256),              // 0
                           tiny({range(256, 512, false),  // 1: waits
                                 range(1024, 1280, true)}),
                           tiny({range(2048, 2304, true)}),  // 2: does not
                           tiny({range(1024, 1280, false),   // 3: waits
                                 range(1280, 1536, true)}),
                           product({range(2048, 2304, false)}),   // 4
                           product({range(1280, 1536, false)})})  // 5
          .calls;
  const size_t message = call_of(calls, 0);
  CHECK(call_of(calls, 1) == call_of(calls, 3));
  CHECK(call_of(calls, 2) != call_of(calls, 1));
  CHECK(waits(calls, call_of(calls, 1), message));
  CHECK_FALSE(waits(calls, call_of(calls, 2), message));
  CHECK_FALSE(waits(calls, call_of(calls, 4), message));
  CHECK(waits(calls, call_of(calls, 5), message));
}

TEST_CASE("memory that a communication may still read is not given to the next steps") {
  int64_t given = 0;
  gpu::GpuLowering lowering([&](int64_t bytes) {
    given += bytes;
    return memory_at(given - bytes);
  });
  // Where the scratch of a step is that fills it, and perhaps exchanges it.
  const auto scratch_of = [&](const std::string& step, bool exchanges) {
    KernelSpecs specs = {StepSpec{step}};
    std::byte* const scratch = add_scratch(specs, 1024);
    specs.emplace_back(FillSpec{contiguous_view(scratch, DType::kUInt8, {1024}), 0});
    if (exchanges)
      specs.emplace_back(ExchangeSpec{{{1, scratch, 1024}}, {{1, memory_at(1 << 20), 1024}}});
    lowering.lower(std::move(specs));
    return lowering.take()[0].accesses[0].begin;
  };
  const std::byte* const first = scratch_of("first", true);
  CHECK(scratch_of("second", false) != first);
  for (int i = 0; i < 4; ++i)
    lowering.lower({StepSpec{"later"}, ExchangeSpec{{{1, memory_at(1 << 20), 16}}, {}}});
  lowering.take();
  KernelSpecs last = {StepSpec{"last"}};
  for (int i = 0; i < 2; ++i) {
    const View scratch = contiguous_view(add_scratch(last, 1024), DType::kUInt8, {1024});
    last.emplace_back(FillSpec{scratch, 0});
  }
  lowering.lower(std::move(last));
  const std::vector<Command> fills = lowering.take();
  CHECK((fills[0].accesses[0].begin == first || fills[1].accesses[0].begin == first));
}

TEST_CASE("traffic counts what is sent and what all-reduces are over") {
  gpu::GpuLowering lowering([](int64_t) { return memory_at(0); });
  lowering.lower(StepSpec{"step"});
  lowering.lower(
      ExchangeSpec{{{1, memory_at(0), 100}, {2, memory_at(0), 20}}, {{1, memory_at(512), 7}}});
  lowering.lower(ExchangeSpec{{{1, memory_at(0), 0}}, {}});  // nothing
  lowering.lower(AllReduceSpec{Reduction::kSum, DType::kFloat64, memory_at(0), 10, {0, 1}});
  lowering.lower(AllReduceSpec{Reduction::kSum, DType::kFloat64, memory_at(0), 10, {0}});  // alone
  lowering.lower(AllGatherSpec{memory_at(256), memory_at(0), 256, {0, 1, 2}});
  lowering.lower(AllGatherSpec{memory_at(0), memory_at(0), 0, {0, 1, 2}});  // nothing
  lowering.lower(ReduceScatterSpec{
      Reduction::kMax, DType::kFloat32, memory_at(0), memory_at(1024), 8, {0, 1, 2, 3}});
  const std::vector<Command> commands = lowering.take();
  CHECK(commands.size() == 4);
  gpu::Traffic traffic;
  traffic.add(gpu::traffic_of(commands), 3);
  CHECK(traffic.exchanges == 3);
  CHECK(traffic.gathers == 6);
  CHECK(traffic.bytes_sent == 3 * (120 + 2 * 256 + 3 * 32));
  CHECK(traffic.bytes_reduced == 240);
}

// --- emulated devices -------------------------------------------------------------------------

using Group = std::shared_ptr<ThreadGroup>;

std::shared_ptr<gpu::Device> open_joined(ThreadGroup& group) {
  gpu::Runtime* const runtime = test_runtime();
  std::shared_ptr<gpu::Device> device = runtime->open(group.rank(), {});
  const std::string id = group.all_gather(group.rank() == 0 ? runtime->make_id() : "")[0];
  device->join(id, group.rank(), group.size());
  return device;
}

// As many GPUs, emulated ones or those of the fake CUDA; false where there is no compiler.
bool prepare(int devices, uint64_t seed) {
  ::setenv("MESHTRAIN_EMULATOR_GPUS", std::to_string(devices).c_str(), 1);
  set_emulator_seed(seed);
  return test_runtime() != nullptr;
}

// The error's text, which must be for exit code 8.
template <class Body>
std::string lost(const Body& body) {
  try {
    body();
  } catch (const RuntimeFailure& error) {
    CHECK(error.exit_code() == ExitCode::kRankLost);
    return error.what();
  }
  return "";
}

bool says(const std::string& text, std::string_view part) {
  CAPTURE(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

TEST_CASE(
    "devices of two to five processes get what the others send and the sums over some of them") {
  for (int size = 2; size <= 5; ++size) {
    if (!prepare(size, static_cast<uint64_t>(size)))
      return;
    run_as_processes(size, [&](const Group& group) {
      const std::shared_ptr<gpu::Device> device = open_joined(*group);
      gpu::check_exchange(*device, group->rank(), size);
      std::vector<int> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      gpu::check_collectives(*device, group->rank(), all);
      std::vector<int> half;  // of the even ranks, and of the odd ones
      for (int rank = group->rank() % 2; rank < size; rank += 2)
        half.push_back(rank);
      gpu::check_collectives(*device, group->rank(), half);
      const int64_t few = device->traffic().bytes_sent;
      gpu::check_collectives(*device, group->rank(), all, gpu::kManyElements);
      CHECK(device->traffic().exchanges == 1);
      // Half of the groups may have one member, which needs no others.
      CHECK(device->traffic().gathers == (half.size() > 1 ? 6 : 4));
      const auto sent = [](int64_t ranks, int64_t elements) {
        return 2 * (ranks - 1) * (elements / ranks) * 4;
      };
      CHECK(few == (size - 1) * 100'001 + sent(size, gpu::kFewElements) +
                       sent(static_cast<int64_t>(half.size()), gpu::kFewElements));
      CHECK(device->traffic().bytes_sent == few + sent(size, gpu::kManyElements));
    });
  }
}

TEST_CASE("a wrong sum is reported with its ranks") {
  if (!prepare(3, 0))
    return;
  run_as_processes(2, [&](const Group& group) {
    const std::shared_ptr<gpu::Device> device = open_joined(*group);
    const std::string text = lost([&] {
      // Rank 1 adds as if it were the first of other ranks.
      gpu::check_collectives(*device, group->rank(),
                             group->rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
    });
    says(text, fmt::format("rank {} got a sum of", group->rank()));
  });
}

TEST_CASE("a process that waits for another one gets an error when that one has gone") {
  if (!prepare(2, 0))
    return;
  run_as_processes(2, [&](const Group& group) {
    const std::shared_ptr<gpu::Device> device = open_joined(*group);
    if (group->rank() == 1)
      return;  // its device goes
    const std::string text = lost([&] { gpu::check_exchange(*device, 0, 2); });
    says(text, "gpu:0 (GPU emulator), rank 0: rank 1 has gone, at step `self-test exchange`");
  });
}

TEST_CASE("abort ends what waits for other processes") {
  if (!prepare(2, 0))
    return;
  run_as_processes(2, [&](const Group& group) {
    const std::shared_ptr<gpu::Device> device = open_joined(*group);
    if (group->rank() == 0) {
      std::thread watchdog([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        device->abort();
      });
      const std::string text = lost([&] { gpu::check_exchange(*device, 0, 2); });
      watchdog.join();
      says(text, "communication was aborted");
    }
    group->all_gather("");  // rank 1 lives as long
  });
}

TEST_CASE("an exception does not wait for a process that never comes") {
  if (!prepare(2, 0))
    return;
  run_as_processes(2, [&](const Group& group) {
    std::shared_ptr<gpu::Device> device = open_joined(*group);
    if (group->rank() == 0) {
      const auto fail = [&] {
        const std::shared_ptr<gpu::Device> own = std::move(device);
        gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
        lowering.lower(StepSpec{"step"});
        std::byte* const memory = own->allocate(256);
        lowering.lower(ExchangeSpec{{}, {{1, memory, 256}}});
        const auto plan = own->make_plan(lowering.take(), {}, 0, 1);
        plan->run();
        throw std::runtime_error("something else");
      };
      CHECK_THROWS_WITH_AS(fail(), "something else", std::runtime_error);
    }
    group->all_gather("");
  });
}

// --- programs -----------------------------------------------------------------------------------

void check_same_bits(const Tensors& tensors, const Tensors& expected) {
  REQUIRE(tensors.size() == expected.size());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    const HostTensor& wanted = expected.at(name);
    REQUIRE(tensor.num_bytes() == wanted.num_bytes());
    CHECK(std::memcmp(tensor.bytes(), wanted.bytes(), tensor.num_bytes()) == 0);
  }
}

void check_processes(int processes, const LayoutCase& step, const Layout& layout, uint64_t seed,
                     bool read_all) {
  const Tensors fixed = run_layout(step, layout, seed, read_all,
                                   {.device = open_test_device(), .fixed_reductions = true});
  for (const bool is_fixed : {true, false}) {
    CAPTURE(is_fixed);
    std::vector<Tensors> results(static_cast<size_t>(processes));
    run_as_processes(processes, [&](const Group& group) {
      const std::shared_ptr<gpu::Device> device = open_joined(*group);
      Place place{.device = device, .group = group, .fixed_reductions = is_fixed};
      int64_t before = 0;  // of variables that were read
      place.before_second_step = [&] { before = device->traffic().bytes_sent; };
      results[static_cast<size_t>(group->rank())] = run_layout(step, layout, seed, read_all, place);
      if (!is_fixed)
        return;
      const int64_t sent = device->traffic().bytes_sent - before;
      // As many bytes as between processes on processors.
      place.device = nullptr;
      place.before_second_step = [&] { before = group->bytes_sent(); };
      run_layout(step, layout, seed, read_all, place);
      CHECK(sent == group->bytes_sent() - before);
    });
    for (const Tensors& of_rank : results)
      is_fixed ? check_same_bits(of_rank, fixed) : compare_tensors(of_rank, fixed);
  }
}

TEST_CASE("random steps have the same bits on one GPU and on several of one process each") {
  for (const size_t seed : sampled_seeds(12, kIsInstrumented ? 6 : 4)) {
    CAPTURE(seed);
    Random random(seed * 15485863 + 7);
    const LayoutCase step = random_graph_step(random);
    const Layout layout = random_layout(random, step);
    for (int processes = 2; processes <= layout.mesh.num_devices(); processes *= 2) {
      CAPTURE(processes);
      if (!prepare(processes, seed))
        return;
      check_processes(processes, step, layout, seed + 99, seed % 2 == 0);
    }
  }
}

}  // namespace
}  // namespace meshtrain::test
