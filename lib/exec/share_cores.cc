#include "exec/share_cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "base/host.h"
#include "exec/worker_pool.h"

namespace meshtrain {
namespace {

void keep_to(const cpu_set_t& set) {
  sched_setaffinity(0, sizeof(set), &set);  // fails where it is not allowed; slower, not wrong
}

// All that the system lets this process use.
void leave_default_binding() {
  if (std::getenv("OMPI_MCA_orte_bound_at_launch") == nullptr ||
      std::getenv("OMPI_MCA_hwloc_base_binding_policy") != nullptr) {
    return;
  }
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    CPU_SET(cpu, &all);
  }
  keep_to(all);
}

}  // namespace

std::vector<int> own_share(const std::vector<int>& cpus, int index, int count) {
  const size_t i = static_cast<size_t>(index), n = static_cast<size_t>(count);
  if (cpus.size() < n) {
    return {};
  }
  const auto at = [&](size_t k) { return cpus.begin() + static_cast<long>(k * cpus.size() / n); };
  return {at(i), at(i + 1)};
}

int share_cores(ProcessGroup& group) {
  leave_default_binding();
  const std::vector<int> cpus = usable_cpus();
  const std::string mine = fmt::format("{} {}", boot_id(), fmt::join(cpus, ","));
  const std::vector<std::string> all = group.all_gather(mine);
  const auto me = all.begin() + group.rank();
  const int count = static_cast<int>(std::count(all.begin(), all.end(), mine));
  const int index = static_cast<int>(std::count(all.begin(), me, mine));
  if (count == 1) {
    return 0;
  }
  const std::vector<int> share = own_share(cpus, index, count);
  if (share.empty()) {
    return 1;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : share) {
    CPU_SET(cpu, &set);
  }
  keep_to(set);
  return 0;
}

}  // namespace meshtrain
