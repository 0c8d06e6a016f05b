#include "exec/worker_pool.h"

#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/system_calls.h"
#include "exec/executor.h"

namespace meshtrain {
namespace {

constexpr int kSpins = 1000;  // pauses before waiting gives way to other threads
constexpr auto kSpinTime = std::chrono::microseconds(50);

// While one lives, numbers too small for a normalised float become zero on this thread, as in XLA:
// they cost a hundred times the others and mean nothing in training.
class DenormalsFlushed {
 public:
  DenormalsFlushed() { _mm_setcsr(before_ | kFlush); }
  ~DenormalsFlushed() { _mm_setcsr(before_); }
  DenormalsFlushed(const DenormalsFlushed&) = delete;

 private:
  static constexpr unsigned kFlush = 0x8040;
  const unsigned before_ = _mm_getcsr();
};

cpu_set_t set_of(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return set;
}

// The first hardware thread of the core that `cpu` belongs to; `cpu` itself when that is unknown.
int first_sibling(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  int first = cpu;
  return file >> first ? first : cpu;
}

// Processors' worth of time that the control group may use; a large number without a limit.
int control_group_limit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0)
    return CPU_SETSIZE;
  return std::max(1, static_cast<int>(std::stod(quota) / period + 0.5));
}

template <class Condition>
void spin_until(bool oversubscribed, Condition&& condition) {
  int spins = oversubscribed ? kSpins : 0;
  while (!condition()) {
    if (spins < kSpins) {
      ++spins;
      _mm_pause();
    } else {
      sched_yield();
    }
  }
}

}  // namespace

std::vector<int> usable_cpus() {
  cpu_set_t mask;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0)
    return {0};
  std::vector<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask))
      continue;
    const int core = first_sibling(cpu);
    if (std::find(cores.begin(), cores.end(), core) != cores.end())
      continue;
    cores.push_back(core);
    cpus.push_back(cpu);
  }
  const size_t limit = static_cast<size_t>(control_group_limit());
  if (cpus.size() > limit)
    cpus.resize(limit);
  return cpus;
}

void SpinBarrier::wait(int n) {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  spin_until(oversubscribed_, [&] { return phase_.load(std::memory_order_acquire) != phase; });
}

WorkerPool::WorkerPool(int num_workers)
    : cpus_(usable_cpus()),
      oversubscribed_(num_workers > static_cast<int>(cpus_.size())),
      barrier_(oversubscribed_) {
  MESHTRAIN_CHECK(num_workers >= 0, "{} workers", num_workers);
  const int n = num_workers == 0 ? static_cast<int>(cpus_.size()) : num_workers;
  if (oversubscribed_ || n < static_cast<int>(cpus_.size()))
    cpus_.clear();  // fewer workers than cores: other processes may have chosen the same cores
  threads_.reserve(static_cast<size_t>(n - 1));
  const SignalsBlocked blocked;  // a handler would need a stack of its own (use_handler_stack)
  for (int w = 1; w < n; ++w) {
    try {
      threads_.emplace_back([this, w] { loop(w); });
    } catch (const std::system_error&) {
      break;  // no more threads for this user: fewer workers compute the same
    }
    if (!cpus_.empty()) {
      const cpu_set_t set = set_of(cpus_[static_cast<size_t>(w)]);
      pthread_setaffinity_np(threads_.back().native_handle(), sizeof(set), &set);
    }
  }
  // Until all of them are up: one that is still starting may hold a lock of the allocator, which a
  // child that is forked meanwhile (base/isolate.h) would wait for without end.
  run([](void*, int) {}, nullptr);
}

WorkerPool::~WorkerPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_)
    thread.join();
}

void WorkerPool::loop(int worker) {
  omp_set_num_threads(1);  // oneDNN computes on the thread that calls it
  const DenormalsFlushed flushed;
  uint32_t seen = 0;
  for (;;) {
    const auto has_work = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    const auto parking_time = std::chrono::steady_clock::now() + kSpinTime;
    while (!has_work()) {
      if (oversubscribed_ || std::chrono::steady_clock::now() > parking_time) {
        generation_.wait(seen, std::memory_order_acquire);
      } else {
        for (int i = 0; i < 16 && !has_work(); ++i)
          _mm_pause();
      }
    }
    ++seen;
    if (stopping_.load(std::memory_order_relaxed))
      return;
    job_(context_, worker);
    done_.fetch_add(1, std::memory_order_release);
  }
}

// The caller is not pinned: threads that it starts later would inherit that. But where it happens
// to sit on the processor of another worker it moves to its own.
void WorkerPool::move_caller_away() {
  if (cpus_.empty())
    return;
  const int here = sched_getcpu();
  const auto end = cpus_.begin() + size();
  if (std::find(cpus_.begin() + 1, end, here) == end)
    return;
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof(before), &before) != 0)
    return;
  const cpu_set_t own = set_of(cpus_[0]);
  if (sched_setaffinity(0, sizeof(own), &own) == 0) {
    sched_setaffinity(0, sizeof(before), &before);
  }
}

void WorkerPool::run_alone(Job job, void* context) {
  omp_set_num_threads(1);
  const DenormalsFlushed flushed;
  job(context, 0);
}

void WorkerPool::run(Job job, void* context) {
  MESHTRAIN_CHECK(!busy_.exchange(true, std::memory_order_acquire),
                  "two threads run the same worker pool");
  if (!threads_.empty()) {
    move_caller_away();
    job_ = job;
    context_ = context;
    done_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  run_alone(job, context);
  const int others = size() - 1;
  spin_until(oversubscribed_, [&] { return done_.load(std::memory_order_acquire) == others; });
  busy_.store(false, std::memory_order_release);
}

std::shared_ptr<WorkerPool> make_worker_pool(int num_workers) {
  return std::make_shared<WorkerPool>(num_workers);
}

}  // namespace meshtrain
