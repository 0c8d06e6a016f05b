#include "exec/executor.h"

#include <algorithm>
#include <chrono>

#include "exec/cpu_maker.h"
#include "exec/memory.h"
#include "exec/pieces.h"
#include "exec/prepare.h"
#include "exec/presum.h"
#include "exec/schedule.h"
#include "exec/worker_pool.h"

namespace meshtrain {
namespace {

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

PieceMap piece_map(const Program& program, int buffer) {
  const Buffer& b = program.buffers[buffer];
  return PieceMap(program.mesh, b.sharding, b.global_shape, b.dtype);
}

}  // namespace

// Whether the next step runs on all workers or on the calling thread alone. Both give the same
// bits; alone is faster for tiny programs, and where other processes compute on the same cores, so
// that a worker that was put aside holds up all others at every barrier. Both are timed now and
// then.
class ModeChooser {
 public:
  enum Mode : int { kTogether, kAlone };

  Mode next() {
    ++runs_;
    if (runs_ <= 4)
      return runs_ <= 2 ? kTogether : kAlone;
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
  static constexpr int kFirstInterval = 32, kLongestInterval = 1024;
  double time_[2] = {};
  int64_t runs_ = 0;
  int interval_ = kFirstInterval, until_trial_ = kFirstInterval;
  Mode last_best_ = kTogether;
};

struct Executor::Impl {
  Impl(Program p, std::shared_ptr<WorkerPool> pool, VariableStore& variables);

  void place_buffers(VariableStore& variables);
  cpu::KernelList prepare(const std::vector<ProgramStep>& steps);
  void run_once(const cpu::KernelList& list);
  static void run_worker(void* self, int worker);
  static void run_all_alone(void* self, int worker);

  Program program;
  std::shared_ptr<WorkerPool> pool;
  Arena arena;
  BufferMemory memory;
  StepScratch step_scratch;
  cpu::KernelList kernels;
  Schedule schedule;
  ModeChooser chooser;
  std::unique_ptr<WorkerScratch> scratch;
  std::vector<PieceMap> inputs, outputs;
};

Executor::Impl::Impl(Program p, std::shared_ptr<WorkerPool> workers, VariableStore& variables)
    : program(std::move(p)), pool(std::move(workers)), arena(program.arena_bytes) {
  place_buffers(variables);
  memory.presummed = find_presummed(program);
  run_once(prepare(program.prologue));
  kernels = prepare(program.steps);
  schedule = make_schedule(kernels, pool->size());
  scratch = std::make_unique<WorkerScratch>(largest_scratch(kernels), pool->size());
  for (const Program::NamedBuffer& input : program.inputs) {
    inputs.push_back(piece_map(program, input.buffer));
  }
  for (const Program::NamedBuffer& output : program.outputs) {
    outputs.push_back(piece_map(program, output.buffer));
  }
}

void Executor::Impl::place_buffers(VariableStore& variables) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.variable == kNone) {
      MESHTRAIN_CHECK(
          buffer.offset >= 0 &&
              buffer.offset + buffer.piece_bytes * buffer.num_pieces <= program.arena_bytes,
          "a buffer of {} bytes at {} in an arena of {}", buffer.piece_bytes * buffer.num_pieces,
          buffer.offset, program.arena_bytes);
      memory.bases.push_back(arena.data() + buffer.offset);
      continue;
    }
    MESHTRAIN_CHECK(variables.piece_bytes(buffer.variable) == buffer.piece_bytes,
                    "pieces of {} have {} bytes in the store and {} in the program",
                    program.variables[buffer.variable].path, variables.piece_bytes(buffer.variable),
                    buffer.piece_bytes);
    memory.bases.push_back(variables.data(buffer.variable));
  }
}

cpu::KernelList Executor::Impl::prepare(const std::vector<ProgramStep>& steps) {
  CpuMaker maker(step_scratch);
  for (const ProgramStep& step : steps)
    prepare_step(program, step, memory, maker);
  return maker.take();
}

void Executor::Impl::run_once(const cpu::KernelList& list) {
  WorkerScratch own(largest_scratch(list), 1);
  for (const cpu::KernelPtr& kernel : list)
    kernel->run(0, kernel->units(), own.of(0));
}

void Executor::Impl::run_worker(void* self, int worker) {
  Impl& impl = *static_cast<Impl*>(self);
  std::byte* scratch = impl.scratch->of(worker);
  for (const Command& command : impl.schedule.workers[static_cast<size_t>(worker)]) {
    if (command.kernel == nullptr) {
      impl.pool->barrier();
    } else {
      command.kernel->run(command.begin, command.end, scratch);
    }
  }
}

void Executor::Impl::run_all_alone(void* self, int) {
  Impl& impl = *static_cast<Impl*>(self);
  for (const cpu::KernelPtr& kernel : impl.kernels) {
    kernel->run(0, kernel->units(), impl.scratch->of(0));
  }
}

Executor::Executor(Program program, std::shared_ptr<WorkerPool> workers, VariableStore& variables)
    : impl_(std::make_unique<Impl>(std::move(program), std::move(workers), variables)) {}

Executor::~Executor() = default;

const Program& Executor::program() const {
  return impl_->program;
}

void Executor::set_input(int index, const void* data, size_t num_bytes) {
  const PieceMap& map = impl_->inputs.at(static_cast<size_t>(index));
  const Program::NamedBuffer& input = impl_->program.inputs[static_cast<size_t>(index)];
  MESHTRAIN_CHECK(static_cast<int64_t>(num_bytes) == map.global_bytes(),
                  "input `{}` takes {} bytes, not {}", input.name, map.global_bytes(), num_bytes);
  map.scatter(static_cast<const std::byte*>(data), impl_->memory.bases[input.buffer]);
}

std::byte* Executor::input_data(int index) {
  const bool is_whole = impl_->inputs.at(static_cast<size_t>(index)).is_whole();
  const int buffer = impl_->program.inputs[static_cast<size_t>(index)].buffer;
  return is_whole ? impl_->memory.bases[buffer] : nullptr;
}

void Executor::run() {
  if (impl_->schedule.is_serial) {
    impl_->pool->run_alone(&Impl::run_all_alone, impl_.get());
    return;
  }
  const ModeChooser::Mode mode = impl_->chooser.next();
  const auto begin = std::chrono::steady_clock::now();
  if (mode == ModeChooser::kTogether) {
    impl_->pool->run(&Impl::run_worker, impl_.get());
  } else {
    impl_->pool->run_alone(&Impl::run_all_alone, impl_.get());
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  impl_->chooser.add(mode, time.count());
}

HostTensor Executor::output(int index) const {
  const int buffer = impl_->program.outputs.at(static_cast<size_t>(index)).buffer;
  const Buffer& b = impl_->program.buffers[buffer];
  HostTensor whole(b.dtype, b.global_shape);
  impl_->outputs[static_cast<size_t>(index)].gather(impl_->memory.bases[buffer], whole.bytes());
  return whole;
}

double Executor::output_scalar(int index) const {
  const HostTensor value = output(index);
  MESHTRAIN_CHECK(value.size() == 1, "output `{}` has {} elements",
                  impl_->program.outputs[static_cast<size_t>(index)].name, value.size());
  return value.at(0);
}

}  // namespace meshtrain
