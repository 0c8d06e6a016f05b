// Devices of several processes, which are threads, by the fake NCCL.
#include <numeric>

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

}  // namespace
}  // namespace meshtrain::test
