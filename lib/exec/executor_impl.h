// The common base of the CPU and the GPU executor.
#pragma once

#include "exec/executor.h"
#include "exec/lower.h"
#include "exec/shard_map.h"

namespace meshtrain {

struct Executor::Impl {
  Impl(Program program, const VariableStore& variables);
  virtual ~Impl() = default;

  virtual int max_steps() const { return 1; }
  virtual void set_input(int index, const void* data, int step) = 0;
  virtual std::byte* input_data(int index, int step) = 0;  // called only when ShardMap::is_whole()
  virtual bool gathers() const { return false; }
  virtual void gather_input(int, const DeviceTable&, std::span<const int64_t>, int) {}
  virtual void prepare() {}
  virtual void begin_compile(const std::vector<const DeviceTable*>&) {}
  virtual void run(int steps) = 0;
  virtual void run_profiled(int steps, StepProfile& to) = 0;
  virtual HostTensor output(int index, int step, int runs_ago) const = 0;

  // Returns a whole output, gathered from the shards of this process and the others.
  HostTensor whole_output(int index, const std::byte* shards) const;

  Program program;
  Processes processes;
  std::vector<ShardMap> inputs, outputs;
  StepProfile* profile = nullptr;
  int last_steps[2] = {1, 1};  // of the last run and the one before
};

ShardMap shard_map(const Program& program, int buffer);

// Returns the address of shard 0 of each buffer: in the arena, or in the variable store.
std::vector<std::byte*> buffer_addresses(const Program& program, std::byte* arena,
                                         VariableStore& variables);

// Offsets of some buffers in memory outside of the arena; kNone: the buffer is not in it.
struct BufferPlaces {
  std::vector<int64_t> offsets;  // by buffer
  int64_t bytes = 0;

  void add(const Buffer& buffer, int index);
  // Sets the addresses of these buffers, relative to `memory`.
  void move(std::byte* memory, std::vector<std::byte*>& addresses) const;
};
// Buffers of the prologue: constants that must survive the steps of other programs.
BufferPlaces constant_places(const Program& program);

std::unique_ptr<Executor::Impl> make_cpu_executor(Program program,
                                                  std::shared_ptr<WorkerPool> workers,
                                                  VariableStore& variables);
std::unique_ptr<Executor::Impl> make_gpu_executor(Program program, VariableStore& variables,
                                                  bool is_prepared_later);

}  // namespace meshtrain
