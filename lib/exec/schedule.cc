#include "exec/schedule.h"

#include <algorithm>

namespace meshtrain {
namespace {

using cpu::Kernel;

constexpr double kWorthSharing = 1500;   // nanoseconds; less runs on one worker
constexpr double kWorthTurns = 100'000;  // nanoseconds for each worker; then others help
constexpr int64_t kTurns = 16;           // of each worker, where there are so many units
constexpr size_t kMaxTracked = 4096;     // accesses remembered before a barrier is cheaper

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
      return seen.worker != worker && cpu::conflict(seen.access, access);
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

class Scheduler {
 public:
  explicit Scheduler(int num_workers) : num_workers_(num_workers) {
    schedule_.workers.resize(static_cast<size_t>(num_workers));
  }

  void add(const Kernel& kernel) {
    if (is_worth_turns(kernel)) {
      share(kernel);
      return;
    }
    const std::vector<Task> tasks = split(kernel, num_workers_);
    if (num_workers_ == 1) {
      append(kernel, tasks);
      return;
    }
    std::vector<std::vector<Access>> touched(tasks.size());
    bool must_wait = is_shared_before_ || tracker_.is_full();
    for (size_t t = 0; t < tasks.size(); ++t) {
      kernel.accesses(tasks[t].begin, tasks[t].end, touched[t]);
      for (const Access& access : touched[t])
        must_wait = must_wait || tracker_.conflicts(access, tasks[t].worker);
    }
    if (must_wait)
      wait();
    append(kernel, tasks);
    for (size_t t = 0; t < tasks.size(); ++t) {
      for (const Access& access : touched[t])
        tracker_.add(access, tasks[t].worker);
    }
  }

  Schedule take() { return std::move(schedule_); }

 private:
  bool is_worth_turns(const Kernel& kernel) const {
    return num_workers_ > 1 && kernel.units() > num_workers_ &&
           kernel.cost() >= kWorthTurns * num_workers_;
  }

  void share(const Kernel& kernel) {
    wait();
    for (int w = 0; w < num_workers_; ++w) {
      KernelSlice slice = slice_of(kernel, w, num_workers_);
      slice.shared = schedule_.num_shared;
      slice.chunk = std::max<int64_t>(kernel.units() / (num_workers_ * kTurns), 1);
      schedule_.workers[static_cast<size_t>(w)].push_back(slice);
    }
    ++schedule_.num_shared;
    schedule_.is_serial = false;
    is_shared_before_ = true;
  }

  void wait() {
    for (std::vector<KernelSlice>& slices : schedule_.workers)
      slices.push_back({});
    ++schedule_.num_barriers;
    tracker_.clear();
    is_shared_before_ = false;
  }

  void append(const Kernel& kernel, const std::vector<Task>& tasks) {
    for (const Task& task : tasks) {
      if (task.worker != 0)
        schedule_.is_serial = false;
      schedule_.workers[static_cast<size_t>(task.worker)].push_back(
          {&kernel, task.begin, task.end});
    }
  }

  int num_workers_;
  Schedule schedule_;
  Tracker tracker_;
  bool is_shared_before_ = false;  // the last kernel, whose units may be of any worker
};

}  // namespace

Schedule make_schedule(const cpu::KernelList& kernels, int num_workers) {
  Scheduler scheduler(num_workers);
  for (const cpu::KernelPtr& kernel : kernels)
    scheduler.add(*kernel);
  return scheduler.take();
}

}  // namespace meshtrain
