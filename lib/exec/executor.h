// Executor: runs a Program on the virtual devices of this process: on its processor cores
// (cpu_executor.cc), or on a GPU (gpu_executor.cc). Of several processes each has an executor for
// its part of the mesh, and all call the same functions in the same order.
//
// Devices are work, not threads: what computes, computes the shards of each step for all of them; a
// collective is a function over all devices' buffers, summed in device order.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "exec/shard_map.h"
#include "exec/step_memory.h"
#include "ir/program.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

class WorkerPool;
std::shared_ptr<WorkerPool> make_worker_pool(int num_workers);  // 0: one per core

// Storage of variables, shared by all programs of a model, and the memory that their steps use by
// turns. A variable has one buffer of part.num_shards(axes) shards, where `axes` are those of its
// storage layout.
class VariableStore {
 public:
  // In the memory of `device`, or of the host where there is none. `processes`: those that the
  // parts of the mesh belong to. Throws RuntimeFailure (exit 4) when the memory cannot be had.
  VariableStore(MeshPart part, std::vector<Variable> variables,
                std::shared_ptr<gpu::Device> device = nullptr, Processes processes = {});
  ~VariableStore();
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;
  int find(std::string_view path) const;  // kNone when absent
  const std::vector<Variable>& variables() const { return variables_; }
  const std::shared_ptr<gpu::Device>& device() const { return device_; }
  const Processes& processes() const { return processes_; }
  const MeshPart& part() const { return part_; }
  // Where the shards of this process are in the whole tensor.
  ShardMap map(int variable) const;
  // Of shard 0, in the memory of the device; shards follow at shard_bytes(variable).
  std::byte* data(int variable) { return addresses_[static_cast<size_t>(variable)]; }
  int64_t shard_bytes(int variable) const;
  // All shards of this process, one after the other, into memory of the host, and from there.
  void copy_shards(int variable, std::byte* to) const;
  void write_shards(int variable, const std::byte* from);
  // The whole tensor; collective where it is split over processes.
  HostTensor read(int variable) const;
  // This process's part of the whole tensor; dtype and shape must agree.
  void write(int variable, const HostTensor& value);
  void fill(int variable, double value);
  int64_t total_bytes() const;
  // Of the device, or of the host.
  StepMemory& step_memory() { return step_memory_; }

 private:
  MeshPart part_;
  std::vector<Variable> variables_;
  std::shared_ptr<gpu::Device> device_;
  Processes processes_;
  std::vector<HostTensor> storage_;     // of the host, one for each variable
  std::byte* device_memory_ = nullptr;  // of the device, for all
  std::vector<std::byte*> addresses_;
  StepMemory step_memory_;
};

// Rows of a dataset's array that a GPU holds whole, so that batches are gathered there.
class DeviceTable {
 public:
  // Throws RuntimeFailure when the memory cannot be had.
  DeviceTable(std::shared_ptr<gpu::Device> device, int64_t rows, int64_t row_bytes);
  ~DeviceTable();
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;
  void write(int64_t first_row, const void* data, int64_t num_bytes);
  const std::byte* data() const { return memory_; }
  int64_t rows() const { return rows_; }
  int64_t row_bytes() const { return row_bytes_; }

 private:
  std::shared_ptr<gpu::Device> device_;
  int64_t rows_, row_bytes_;
  std::byte* memory_;
};

// A run computes one step or, on a GPU, several: each has inputs and outputs of its own, numbered
// from 0. Inputs are set for every run anew.
class Executor {
 public:
  // Allocates what it needs and prepares every kernel, on the device of the store. The store must
  // outlive the executor and hold the program's variables under the same indices. From a run's
  // first input to its end no other program of the store may run. Throws RuntimeFailure (exit 4)
  // when the memory cannot be had.
  Executor(Program program, std::shared_ptr<WorkerPool> workers, VariableStore& variables);
  ~Executor();

  const Program& program() const;
  // Steps of one run at most: 1 on the CPU, and where outputs are large.
  int max_steps() const;
  // The rows (along dimension 0) of an input that this process computes with; one of a scalar.
  struct RowRange {
    int64_t first = 0, count = 1;
  };
  RowRange input_rows(int index) const;
  // Writes these rows of the whole (global) tensor of an input; scattered to the shards. `index` is
  // into Program::inputs. Data of `num_bytes` in the input's dtype, row-major.
  void set_input(int index, const void* data, size_t num_bytes, int step = 0);
  // For inputs whose shards lie one after the other as the tensor does (split over dimension 0 or
  // whole): memory of the host to write those rows into; nullptr otherwise.
  std::byte* input_data(int index, int step = 0);
  // Whether such an input may be gathered from tables.
  bool can_gather(int index) const;
  // Its input_rows() are these rows of the table, which must outlive the executor's next use.
  void gather_input(int index, const DeviceTable& table, std::span<const int64_t> rows,
                    int step = 0);
  // May return before a GPU has computed it; whatever reads results waits.
  void run(int steps = 1);
  // The whole tensor of an output (index into Program::outputs) of a step of the last run;
  // collective where it is split over processes. `runs_ago` 1: of the run before that, without
  // waiting for the last one; on a GPU, where outputs are small. More than some kilobytes of
  // outputs are only there until another program of the store runs.
  HostTensor output(int index, int step = 0, int runs_ago = 0) const;
  double output_scalar(int index, int step = 0, int runs_ago = 0) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshtrain
