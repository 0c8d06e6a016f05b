// Cores of a host among the processes on it. Threads that play processes have cores of their own.
#include "exec/share_cores.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <functional>

#include "exec/worker_pool.h"
#include "support/thread_group.h"

namespace meshtrain::test {
namespace {

using Cpus = std::vector<int>;

TEST_CASE("each process has its own share of the cores") {
  CHECK(own_share({0, 1, 2, 3}, 0, 2) == Cpus{0, 1});
  CHECK(own_share({0, 1, 2, 3}, 1, 2) == Cpus{2, 3});
  CHECK(own_share({4, 6, 8}, 0, 2) == Cpus{4});  // nobody has one twice
  CHECK(own_share({4, 6, 8}, 1, 2) == Cpus{6, 8});
  CHECK(own_share({5}, 0, 1) == Cpus{5});
  CHECK(own_share({0, 1}, 1, 3).empty());
}

void keep_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

struct Shared {
  int threads;
  Cpus cpus;
};

// What each of `size` processes has afterwards; `before` acts on each first.
std::vector<Shared> shared_by(int size, const std::function<void(int rank)>& before) {
  std::vector<Shared> all(static_cast<size_t>(size));
  run_as_processes(size, [&](std::shared_ptr<ThreadGroup> group) {
    before(group->rank());
    const int threads = share_cores(*group);
    all[static_cast<size_t>(group->rank())] = {threads, usable_cpus()};
  });
  return all;
}

TEST_CASE("processes that may use the same cores divide them") {
  const Cpus here = usable_cpus();
  const int size = static_cast<int>(here.size());
  Cpus together;
  for (const Shared& shared : shared_by(size, [](int) {})) {
    CHECK(shared.threads == 0);
    CHECK(shared.cpus.size() == 1);
    together.insert(together.end(), shared.cpus.begin(), shared.cpus.end());
  }
  CHECK(together == here);
  CHECK(usable_cpus() == here);  // of this thread
}

TEST_CASE("more processes than cores compute with one thread each") {
  const Cpus here = usable_cpus();
  for (const Shared& shared : shared_by(static_cast<int>(here.size()) + 1, [](int) {})) {
    CHECK(shared.threads == 1);
    CHECK(shared.cpus == here);
  }
}

TEST_CASE("processes that were bound to cores of their own keep them") {
  const Cpus here = usable_cpus();
  if (here.size() < 2) {
    MESSAGE("one core only");
    return;
  }
  const std::vector<Shared> all =
      shared_by(2, [&](int rank) { keep_to(here[static_cast<size_t>(1 - rank)]); });
  CHECK(all[0].threads == 0);
  CHECK(all[0].cpus == Cpus{here[1]});
  CHECK(all[1].cpus == Cpus{here[0]});
}

TEST_CASE("what mpirun binds to without being asked is given up") {
  const Cpus here = usable_cpus();
  const auto bound_to_first = [&](int) { keep_to(here[0]); };
  ::setenv("OMPI_MCA_orte_bound_at_launch", "1", 1);
  const Shared by_default = shared_by(1, bound_to_first)[0];
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "core", 1);
  const Shared chosen = shared_by(1, bound_to_first)[0];
  ::unsetenv("OMPI_MCA_orte_bound_at_launch");
  ::unsetenv("OMPI_MCA_hwloc_base_binding_policy");
  CHECK(by_default.cpus.size() >= here.size());
  CHECK(chosen.cpus == Cpus{here[0]});
}

}  // namespace
}  // namespace meshtrain::test
