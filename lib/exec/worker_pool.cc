#include "exec/worker_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <fstream>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/system_calls.h"
#include "exec/executor.h"

namespace meshtrain {
namespace {

constexpr std::chrono::microseconds kParkingTime(50);    // of workers without work
constexpr std::chrono::microseconds kLongestSpin(1000);  // of those that wait for one another
constexpr int64_t kShortestSpin = 50'000;                // ns

std::chrono::nanoseconds spin_time(bool oversubscribed, std::chrono::nanoseconds longest) {
  return oversubscribed ? std::chrono::nanoseconds(0) : longest;
}

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

// The order of these and of sleep's own is one for all threads (seq_cst): either the writer sees
// the sleeper, or the sleeper the new value.
void Signal::wake() {
  if (sleepers_.load() != 0)
    syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Signal::store(uint32_t value) {
  value_.store(value);
  wake();
}

void Signal::increment() {
  value_.fetch_add(1);
  wake();
}

bool Signal::spin_while(uint32_t value, int64_t spin) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(spin);
  do {
    for (int i = 0; i < 16; ++i) {
      if (load() != value)
        return true;
      _mm_pause();
    }
  } while (spin != 0 && std::chrono::steady_clock::now() < end);
  return false;
}

void Signal::wait_while(uint32_t value) {
  if (load() != value)
    return;
  const int64_t spin = spin_.load(std::memory_order_relaxed);
  if (spin_while(value, spin)) {
    if (spin < longest_)
      spin_.store(std::min(longest_, spin + spin / 64 + 1), std::memory_order_relaxed);
    return;
  }
  spin_.store(std::min(longest_, std::max(spin / 2, kShortestSpin)), std::memory_order_relaxed);
  sleepers_.fetch_add(1);
  while (value_.load() == value)
    syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
  sleepers_.fetch_sub(1);
}

SpinBarrier::SpinBarrier(bool oversubscribed) : phase_(spin_time(oversubscribed, kLongestSpin)) {}

void SpinBarrier::wait(int n) {
  const uint32_t phase = phase_.load();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1);
    return;
  }
  phase_.wait_while(phase);
}

WorkerPool::WorkerPool(int num_workers)
    : cpus_(usable_cpus()),
      oversubscribed_(num_workers > static_cast<int>(cpus_.size())),
      barrier_(oversubscribed_),
      generation_(spin_time(oversubscribed_, kParkingTime)),
      done_(spin_time(oversubscribed_, kLongestSpin)) {
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
  generation_.increment();
  for (std::thread& thread : threads_)
    thread.join();
}

void WorkerPool::loop(int worker) {
  omp_set_num_threads(1);  // oneDNN computes on the thread that calls it
  const DenormalsFlushed flushed;
  for (uint32_t seen = 0;; ++seen) {
    generation_.wait_while(seen);
    if (stopping_.load(std::memory_order_relaxed))
      return;
    job_(context_, worker);
    done_.increment();
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
    done_.store(0);
    generation_.increment();
  }
  run_alone(job, context);
  const uint32_t others = static_cast<uint32_t>(size() - 1);
  for (uint32_t done = done_.load(); done != others; done = done_.load())
    done_.wait_while(done);
  busy_.store(false, std::memory_order_release);
}

std::shared_ptr<WorkerPool> make_worker_pool(int num_workers) {
  return std::make_shared<WorkerPool>(num_workers);
}

}  // namespace meshtrain
