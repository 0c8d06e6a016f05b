// Devices of several processes, which are threads, by the fake NCCL.
#include <cstdlib>
#include <numeric>

#include "backend/gpu/lowering.h"
#include "backend/gpu/self_test.h"
#include "base/error.h"
#include "fake_gpu.h"
#include "support/thread_group.h"

namespace meshtrain::test {
namespace {

using Group = std::shared_ptr<ThreadGroup>;

std::shared_ptr<gpu::Device> open_joined(ThreadGroup& group, const gpu::DeviceOptions& options) {
  gpu::Runtime* const runtime = fake_runtime();
  std::shared_ptr<gpu::Device> device = runtime->open(group.rank(), options);
  const std::string id = group.all_gather(group.rank() == 0 ? runtime->make_id() : "")[0];
  device->join(id, group.rank(), group.size());
  return device;
}

// All processes have a group of their own at the same time, as in programs: NCCL splits with all.
void check_groups(int size, bool use_graph) {
  run_as_processes(size, [&](const Group& group) {
    gpu::DeviceOptions options;
    options.use_graph = use_graph;
    const std::shared_ptr<gpu::Device> device = open_joined(*group, options);
    gpu::check_exchange(*device, group->rank(), size);
    std::vector<int> all(static_cast<size_t>(size)), half;
    std::iota(all.begin(), all.end(), 0);
    for (int rank = group->rank() % 2; rank < size; rank += 2)
      half.push_back(rank);
    for (const std::vector<int>& ranks : {all, half, all})
      gpu::check_collectives(*device, group->rank(), ranks);
    CHECK(device->traffic().exchanges == 1);
    group->all_gather("");
  });
}

// Runs x = y + 1, x = the sum of all x, y = x / 2 so often in two processes.
float alternate(const Group& group, const gpu::DeviceOptions& options, int runs) {
  constexpr int64_t kCount = 300;
  const std::shared_ptr<gpu::Device> device = open_joined(*group, options);
  std::byte* const x = device->allocate(kCount * 4);
  std::byte* const y = device->allocate(kCount * 4);
  const View first = contiguous_view(x, DType::kFloat32, {kCount});
  const View second = contiguous_view(y, DType::kFloat32, {kCount});
  gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
  const auto lower = [&](const View& from, const char* op, double value, const View& to) {
    lowering.lower(StepSpec{op, {whole_access(from, false), whole_access(to, true)}});
    lowering.lower(
        TapeSpec{{kCount},
                 {from},
                 {{"constant", {}, DType::kFloat32, value}, {op, {0, 1}, DType::kFloat32}},
                 {{1, to}}});
  };
  lower(second, "add", 1, first);
  lowering.lower(StepSpec{"sum", {whole_access(first, false), whole_access(first, true)}});
  lowering.lower(AllReduceSpec{Reduction::kSum, DType::kFloat32, x, kCount, {0, 1}});
  lower(first, "mul", 0.5, second);
  const auto plan = device->make_plan(lowering.take(), {}, 0, 1);
  for (int run = 0; run < runs; ++run)
    plan->run();
  float last = 0;
  device->download(&last, y + (kCount - 1) * 4, 4);
  device->free(x);
  device->free(y);
  group->all_gather("");
  return last;
}

TEST_CASE("kernels wait for communication and communication for kernels") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const bool use_graph : {false, true}) {
      CAPTURE(seed);
      CAPTURE(use_graph);
      set_order(seed);
      run_as_processes(2, [&](const Group& group) {
        gpu::DeviceOptions options;
        options.use_graph = use_graph;
        CHECK(alternate(group, options, 3) == 3);
      });
      check_clean();
    }
  }
  set_order(0);
}

TEST_CASE("devices of two and four processes exchange and reduce as graphs and as single calls") {
  for (const uint64_t seed : {0, 5}) {
    for (const int size : {2, 4}) {
      for (const bool use_graph : {false, true}) {
        CAPTURE(seed);
        CAPTURE(size);
        CAPTURE(use_graph);
        set_order(seed);
        check_groups(size, use_graph);
        check_clean();
      }
    }
  }
  set_order(0);
}

TEST_CASE("communicators that block until all have come work the same") {
  ::setenv("MESHTRAIN_NCCL_BLOCKING", "1", 1);
  set_order(1);
  check_groups(4, true);
  check_clean();
  ::unsetenv("MESHTRAIN_NCCL_BLOCKING");
  set_order(0);
}

}  // namespace
}  // namespace meshtrain::test
