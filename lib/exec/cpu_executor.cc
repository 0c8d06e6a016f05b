// Programs on the processor: one pinned worker per core. Nothing is allocated in a step but within
// oneDNN's convolutions. The result does not depend on the number of workers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <unordered_map>
#include <utility>

#include "backend/cpu/chain.h"
#include "backend/cpu/lowering.h"
#include "base/host.h"
#include "exec/all_steps.h"
#include "exec/cpu_collective.h"
#include "exec/executor_impl.h"
#include "exec/memory.h"
#include "exec/partial_sum_fusion.h"
#include "exec/schedule.h"
#include "exec/worker_pool.h"

namespace meshtrain {
namespace {

constexpr int64_t kSmallResult = 4096;  // bytes

// Kernel scratch of each worker, apart by whole cache lines and then some.
class WorkerScratch {
 public:
  WorkerScratch(size_t bytes, int num_workers)
      : stride_((bytes + 4095) / 4096 * 4096 + 256),
        memory_(DType::kUInt8, {static_cast<int64_t>(stride_) * num_workers}) {}
  std::byte* of(int worker) { return memory_.bytes() + stride_ * static_cast<size_t>(worker); }

 private:
  size_t stride_;
  HostTensor memory_;
};

size_t largest_scratch(const cpu::KernelList& kernels) {
  size_t bytes = 64;
  for (const cpu::KernelPtr& kernel : kernels)
    bytes = std::max(bytes, kernel->scratch_bytes());
  return bytes;
}

// Whether the next step runs on all workers or on the calling thread alone. Both give the same
// bits; alone is faster for tiny programs, and where other processes compute on the same cores, so
// that a worker that was put aside holds up all others at every barrier. Both are timed now and
// then, but long steps are never tried alone: barriers are nothing in their time.
class ModeChooser {
 public:
  enum Mode : int { kTogether, kAlone };

  Mode next() {
    ++runs_;
    if (runs_ <= 2 || time_[kTogether] > kLongSeconds)
      return kTogether;
    if (runs_ <= 4 || time_[kAlone] == 0)
      return kAlone;
    const Mode best = time_[kTogether] <= time_[kAlone] ? kTogether : kAlone;
    if (--until_trial_ > 0)
      return best;
    interval_ = best == last_best_ ? std::min(interval_ * 2, kLongestInterval) : kFirstInterval;
    until_trial_ = interval_;
    last_best_ = best;
    return best == kTogether ? kAlone : kTogether;
  }
  // Bursts of other work are forgotten slowly, a fast run is believed at once.
  void add(Mode mode, double seconds) {
    double& time = time_[mode];
    time = time == 0 || seconds < time ? seconds : 0.75 * time + 0.25 * seconds;
  }

 private:
  static constexpr double kLongSeconds = 0.1;
  static constexpr int kFirstInterval = 32, kLongestInterval = 1024;
  double time_[2] = {};
  int64_t runs_ = 0;
  int interval_ = kFirstInterval, until_trial_ = kFirstInterval;
  Mode last_best_ = kTogether;
};

class CpuExecutor final : public Executor::Impl {
 public:
  CpuExecutor(Program p, std::shared_ptr<WorkerPool> workers, VariableStore& variables);

  void set_input(int index, const void* data, int) override {
    inputs[static_cast<size_t>(index)].scatter(static_cast<const std::byte*>(data), base_of(index));
  }
  std::byte* input_data(int index, int) override { return base_of(index); }
  void run(int steps) override;
  void run_profiled(int steps, StepProfile& to) override;
  HostTensor output(int index, int step, int runs_ago) const override;

 private:
  cpu::KernelList prepare(KernelSpecs specs, std::vector<std::string>* paths_of_kernels = nullptr);
  void run_once(const cpu::KernelList& list);
  template <bool kTimed>
  static void run_worker(void* self, int worker);
  template <bool kTimed>
  static void run_all_alone(void* self, int worker);
  template <class Run>
  void each_range(const KernelSlice& slice, int worker, const Run& run);
  void run_slice(const KernelSlice& slice, int worker);
  void time_slice(const KernelSlice& slice, int worker);

  std::byte* base_of(int input) const {
    return memory.bases[program.inputs[static_cast<size_t>(input)].buffer];
  }
  const std::byte* base_of_output(size_t output) const {
    return memory.bases[program.outputs[output].buffer];
  }
  void keep_results();

  std::shared_ptr<WorkerPool> pool;
  HostTensor constants;
  BufferMemory memory;
  std::vector<std::vector<std::byte>> results;  // of outputs that are small, of the last run
  StepScratch step_scratch;
  cpu::KernelList kernels;
  Schedule schedule;
  struct alignas(64) Taken {
    std::atomic<int64_t> units = 0;
  };
  std::vector<Taken> units_taken;  // by shared kernel and owner, in this run
  ModeChooser chooser;
  std::unique_ptr<WorkerScratch> scratch;
  std::atomic<bool> failed = false;  // a kernel, in this run
  std::exception_ptr failure;        // of the first

  // Of a profiled run.
  struct Timed {
    const cpu::Kernel* kernel;
    double begin, end;
  };
  std::unordered_map<const cpu::Kernel*, std::string> paths;  // of kernels, or members of chains
  bool is_timed = false;
  ModeChooser::Mode last_mode = ModeChooser::kAlone;
  std::vector<std::vector<Timed>> timed;  // by worker
};

CpuExecutor::CpuExecutor(Program p, std::shared_ptr<WorkerPool> workers, VariableStore& variables)
    : Impl(std::move(p), variables), pool(std::move(workers)) {
  StepMemory::Share share(variables.step_memory());
  memory.bases = buffer_addresses(program, share.take(program.arena_bytes), variables);
  const BufferPlaces kept = constant_places(program);
  constants = HostTensor(DType::kUInt8, {std::max<int64_t>(kept.bytes, 1)});
  kept.move(constants.bytes(), memory.bases);
  memory.fused_sums = find_fused_sums(program);
  for (const ShardMap& output : outputs) {
    const int64_t bytes = output.total_bytes();
    results.emplace_back(static_cast<size_t>(bytes <= kSmallResult ? bytes : 0));
  }
  run_once(prepare(lower_steps(program, program.prologue, memory)));
  std::vector<std::string> names;
  kernels = prepare(lower_all_steps(program, memory), &names);
  for (size_t k = 0; k < kernels.size(); ++k)
    paths[kernels[k].get()] = std::move(names[k]);
  kernels = cpu::join_chains(std::move(kernels), pool->size());
  schedule = make_schedule(kernels, pool->size());
  units_taken = std::vector<Taken>(static_cast<size_t>(schedule.num_shared * pool->size()));
  scratch = std::make_unique<WorkerScratch>(largest_scratch(kernels), pool->size());
}

cpu::KernelList CpuExecutor::prepare(KernelSpecs specs,
                                     std::vector<std::string>* paths_of_kernels) {
  cpu::CpuLowering lowering(step_scratch, collectives_of(processes));
  lowering.lower(std::move(specs));
  if (paths_of_kernels != nullptr)
    *paths_of_kernels = lowering.paths();
  return lowering.take();
}

void CpuExecutor::run_once(const cpu::KernelList& list) {
  WorkerScratch own(largest_scratch(list), 1);
  for (const cpu::KernelPtr& kernel : list)
    kernel->run(0, kernel->units(), own.of(0));
}

// Calls run(begin, end) for the units of a slice.
template <class Run>
void CpuExecutor::each_range(const KernelSlice& slice, int worker, const Run& run) {
  if (slice.shared < 0) {
    run(slice.begin, slice.end);
    return;
  }
  const int n = pool->size();
  for (int i = 0; i < n; ++i) {
    const int owner = (worker + i) % n;
    const KernelSlice own = slice_of(*slice.kernel, owner, n);
    std::atomic<int64_t>& taken = units_taken[static_cast<size_t>(slice.shared * n + owner)].units;
    for (int64_t begin; (begin = own.begin + taken.fetch_add(slice.chunk)) < own.end;)
      run(begin, std::min(begin + slice.chunk, own.end));
  }
}

void CpuExecutor::run_slice(const KernelSlice& slice, int worker) {
  each_range(slice, worker, [&](int64_t begin, int64_t end) {
    slice.kernel->run(begin, end, scratch->of(worker));
  });
}

// Members of a chain take turns, but have one event each: as if they came one after the other.
void CpuExecutor::time_slice(const KernelSlice& slice, int worker) {
  std::vector<Timed>& events = timed[static_cast<size_t>(worker)];
  const double start = steady_seconds();
  const auto* chain = dynamic_cast<const cpu::Chain*>(slice.kernel);
  if (chain == nullptr) {
    run_slice(slice, worker);
    events.push_back({slice.kernel, start, steady_seconds()});
    return;
  }
  const cpu::KernelList& members = chain->members();
  std::vector<double> seconds(members.size());
  each_range(slice, worker, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (size_t m = 0; m < members.size(); ++m) {
        const double before = steady_seconds();
        chain->run_part(*members[m], part, scratch->of(worker));
        seconds[m] += steady_seconds() - before;
      }
    }
  });
  double at = start;
  for (size_t m = 0; m < members.size(); ++m) {
    events.push_back({members[m].get(), at, at + seconds[m]});
    at += seconds[m];
  }
}

template <bool kTimed>
void CpuExecutor::run_worker(void* self, int worker) {
  CpuExecutor& impl = *static_cast<CpuExecutor*>(self);
  for (const KernelSlice& slice : impl.schedule.workers[static_cast<size_t>(worker)]) {
    if (slice.kernel == nullptr) {
      impl.pool->barrier();
    } else if (!impl.failed) {
      // Others wait at the next barrier, and must not for ever.
      try {
        kTimed ? impl.time_slice(slice, worker) : impl.run_slice(slice, worker);
      } catch (...) {
        if (!impl.failed.exchange(true))
          impl.failure = std::current_exception();
      }
    }
  }
}

template <bool kTimed>
void CpuExecutor::run_all_alone(void* self, int) {
  CpuExecutor& impl = *static_cast<CpuExecutor*>(self);
  for (const cpu::KernelPtr& kernel : impl.kernels) {
    const KernelSlice slice{kernel.get(), 0, kernel->units()};
    kTimed ? impl.time_slice(slice, 0) : impl.run_slice(slice, 0);
  }
}

void CpuExecutor::run(int steps) {
  MESHTRAIN_CHECK(steps == 1, "{} steps at once", steps);
  const auto alone = is_timed ? &run_all_alone<true> : &run_all_alone<false>;
  if (schedule.is_serial) {
    pool->run_alone(alone, this);
    keep_results();
    return;
  }
  const ModeChooser::Mode mode = chooser.next();
  const auto begin = std::chrono::steady_clock::now();
  if (mode == ModeChooser::kTogether) {
    for (Taken& taken : units_taken)
      taken.units = 0;
    pool->run(is_timed ? &run_worker<true> : &run_worker<false>, this);
    if (failed.exchange(false))
      std::rethrow_exception(std::exchange(failure, nullptr));
  } else {
    pool->run_alone(alone, this);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  chooser.add(mode, time.count());
  last_mode = mode;
  keep_results();
}

void CpuExecutor::run_profiled(int steps, StepProfile& to) {
  is_timed = true;
  timed.assign(static_cast<size_t>(pool->size()), {});
  const double begin = steady_seconds();
  run(steps);
  const double end = steady_seconds();
  is_timed = false;
  if (to.steps.empty())
    to.origin = begin;
  const bool is_alone = schedule.is_serial || last_mode == ModeChooser::kAlone;
  to.steps.push_back(
      {begin - to.origin, end - to.origin, is_alone ? 1 : pool->size(), to.events.size()});
  for (int w = static_cast<int>(to.threads.size()); w < pool->size(); ++w)
    to.threads.push_back(fmt::format("worker {}", w));
  for (size_t w = 0; w < timed.size(); ++w) {
    for (const Timed& one : timed[w])
      to.events.push_back({to.kernel(paths.at(one.kernel)), static_cast<int>(w),
                           one.begin - to.origin, one.end - to.origin});
  }
}

// The loss is read behind steps of other programs, which have the same arena.
void CpuExecutor::keep_results() {
  for (size_t o = 0; o < results.size(); ++o)
    std::copy_n(base_of_output(o), results[o].size(), results[o].data());
}

HostTensor CpuExecutor::output(int index, int, int runs_ago) const {
  MESHTRAIN_CHECK(runs_ago == 0);
  const size_t o = static_cast<size_t>(index);
  return whole_output(index, results[o].empty() ? base_of_output(o) : results[o].data());
}

}  // namespace

std::unique_ptr<Executor::Impl> make_cpu_executor(Program program,
                                                  std::shared_ptr<WorkerPool> workers,
                                                  VariableStore& variables) {
  return std::make_unique<CpuExecutor>(std::move(program), std::move(workers), variables);
}

}  // namespace meshtrain
