#include "exec/schedule.h"

#include <algorithm>

namespace meshtrain {
namespace {

using cpu::Kernel;

constexpr double kWorthSharing = 1500;  // nanoseconds; less runs on one worker
constexpr size_t kMaxTracked = 4096;    // accesses remembered before a barrier is cheaper

struct Task {
  int worker;
  int64_t begin, end;
};

std::vector<Task> split(const Kernel& kernel, int num_workers) {
  const int64_t units = kernel.units();
  if (units == 0)
    return {};
  const double shares = std::max(1.0, kernel.cost() / (kWorthSharing / 2));
  const int64_t n = std::min<int64_t>({num_workers, units, static_cast<int64_t>(shares)});
  std::vector<Task> tasks;
  for (int64_t i = 0; i < n; ++i) {
    const int worker = static_cast<int>(i * num_workers / n);
    const Task task{worker, units * i / n, units * (i + 1) / n};
    if (task.begin < task.end)
      tasks.push_back(task);
  }
  return tasks;
}

// The memory that workers accessed since the last barrier.
class Tracker {
 public:
  // Whether `access` by `worker` must come after something of another worker.
  bool conflicts(const Access& access, int worker) const {
    return std::any_of(seen_.begin(), seen_.end(), [&](const Seen& seen) {
      return seen.worker != worker && (seen.access.is_write || access.is_write) &&
             seen.access.begin < access.end && access.begin < seen.access.end;
    });
  }
  void add(const Access& access, int worker) {
    if (access.begin >= access.end)
      return;
    for (const Seen& seen : seen_) {  // already known
      if (seen.worker == worker && seen.access.is_write == access.is_write &&
          seen.access.begin <= access.begin && access.end <= seen.access.end) {
        return;
      }
    }
    seen_.push_back({access, worker});
  }
  bool is_full() const { return seen_.size() > kMaxTracked; }
  void clear() { seen_.clear(); }

 private:
  struct Seen {
    Access access;
    int worker;
  };
  std::vector<Seen> seen_;
};

}  // namespace

Schedule make_schedule(const cpu::KernelList& kernels, int num_workers) {
  Schedule schedule;
  schedule.workers.resize(static_cast<size_t>(num_workers));
  Tracker tracker;
  std::vector<Access> accesses;
  for (const cpu::KernelPtr& kernel : kernels) {
    const std::vector<Task> tasks = split(*kernel, num_workers);
    if (num_workers == 1) {
      for (const Task& task : tasks) {
        schedule.workers[0].push_back({kernel.get(), task.begin, task.end});
      }
      continue;
    }
    std::vector<std::vector<Access>> touched(tasks.size());
    bool must_wait = tracker.is_full();
    for (size_t t = 0; t < tasks.size(); ++t) {
      kernel->accesses(tasks[t].begin, tasks[t].end, touched[t]);
      for (const Access& access : touched[t]) {
        must_wait = must_wait || tracker.conflicts(access, tasks[t].worker);
      }
    }
    if (must_wait) {
      for (std::vector<KernelSlice>& slices : schedule.workers)
        slices.push_back({});
      ++schedule.num_barriers;
      tracker.clear();
    }
    for (size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].worker != 0)
        schedule.is_serial = false;
      schedule.workers[static_cast<size_t>(tasks[t].worker)].push_back(
          {kernel.get(), tasks[t].begin, tasks[t].end});
      for (const Access& access : touched[t])
        tracker.add(access, tasks[t].worker);
    }
  }
  return schedule;
}

}  // namespace meshtrain
