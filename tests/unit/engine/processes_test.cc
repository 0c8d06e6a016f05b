// The same steps on several processes, played by threads: with fixed reductions every number has
// the same bits as on one process; with fast ones they differ by rounding.
#include <doctest/doctest.h>

#include <cstring>

#include "support/random_steps.h"
#include "support/sampled.h"
#include "support/thread_group.h"

using namespace meshtrain;
using namespace meshtrain::testing;

namespace {

constexpr size_t kCases = 60, kStride = 3;

void check_same_bits(const Tensors& tensors, const Tensors& expected) {
  REQUIRE(tensors.size() == expected.size());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    const HostTensor& wanted = expected.at(name);
    REQUIRE(tensor.num_bytes() == wanted.num_bytes());
    CHECK(std::memcmp(tensor.bytes(), wanted.bytes(), tensor.num_bytes()) == 0);
  }
}

// What every rank of so many processes gets.
std::vector<Tensors> run_over(int processes, const LayoutCase& step, const Layout& layout,
                              uint64_t seed, bool read_all, bool fixed) {
  std::vector<Tensors> all(static_cast<size_t>(processes));
  run_as_processes(processes, [&](std::shared_ptr<ThreadGroup> group) {
    all[static_cast<size_t>(group->rank())] =
        run_layout(step, layout, seed, read_all, {.group = group, .fixed_reductions = fixed});
  });
  return all;
}

void check_processes(const LayoutCase& step, const Layout& layout, uint64_t seed, bool read_all) {
  const Tensors fixed = run_layout(step, layout, seed, read_all, {.fixed_reductions = true});
  const Tensors fast = run_layout(step, layout, seed, read_all);
  compare_tensors(fixed, fast);
  for (int processes = 2; processes <= layout.mesh.num_devices(); processes *= 2) {
    CAPTURE(processes);
    for (const Tensors& of_rank : run_over(processes, step, layout, seed, read_all, true)) {
      check_same_bits(of_rank, fixed);
    }
    for (const Tensors& of_rank : run_over(processes, step, layout, seed, read_all, false)) {
      compare_tensors(of_rank, fast);
    }
  }
}

}  // namespace

TEST_CASE("processes: random steps of graphs have the same bits on 1 to 8 of them") {
  for (const size_t seed : test::sampled_seeds(kCases, kStride)) {
    CAPTURE(seed);
    Random random(seed * 6007 + 3);
    const LayoutCase step = random_graph_step(random);
    const Layout layout = random_layout(random, step);
    check_processes(step, layout, seed + 777, seed % 2 == 0);
  }
}
