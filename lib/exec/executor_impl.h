// What the executors of the processor and of GPUs have in common.
#pragma once

#include "exec/executor.h"
#include "exec/lower.h"
#include "exec/shard_map.h"

namespace meshtrain {

struct Executor::Impl {
  Impl(Program program, const VariableStore& variables);
  virtual ~Impl() = default;

  virtual int max_steps() const { return 1; }
  virtual void set_input(int index, const void* data, size_t num_bytes, int step) = 0;
  virtual std::byte* input_data(int index, int step) = 0;  // asked only where it is whole
  virtual bool gathers() const { return false; }
  virtual void gather_input(int, const DeviceTable&, std::span<const int64_t>, int) {}
  virtual void run(int steps) = 0;
  virtual HostTensor output(int index, int step, int runs_ago) const = 0;

  // The whole of an output from the shards of this process.
  HostTensor whole_output(int index, const std::byte* shards) const;

  Program program;
  Processes processes;
  std::vector<ShardMap> inputs, outputs;
  int last_steps[2] = {1, 1};  // of the last run, and of the one before
};

ShardMap shard_map(const Program& program, int buffer);

// Where shard 0 of each buffer is: in the arena, or where its variable is stored.
std::vector<std::byte*> buffer_addresses(const Program& program, std::byte* arena,
                                         VariableStore& variables);

// Places of some buffers one after the other in memory apart from the arena; kNone: not there.
struct BufferPlaces {
  std::vector<int64_t> offsets;  // by buffer
  int64_t bytes = 0;

  void add(const Buffer& buffer, int index);
  // Moves them to where `memory` begins.
  void move(std::byte* memory, std::vector<std::byte*>& addresses) const;
};
// What the prologue makes, which must outlast the steps of other programs.
BufferPlaces constant_places(const Program& program);

std::unique_ptr<Executor::Impl> make_cpu_executor(Program program,
                                                  std::shared_ptr<WorkerPool> workers,
                                                  VariableStore& variables);
std::unique_ptr<Executor::Impl> make_gpu_executor(Program program, VariableStore& variables);

}  // namespace meshtrain
