// Executor: runs a Program on the virtual devices of this process: on its processor cores
// (cpu_executor.cc), or on a GPU (gpu_executor.cc). Each process has an executor for its part of
// the mesh, and all processes call the same functions in the same order.
//
// Devices are work, not threads: each step computes the shards of all devices. A collective is a
// function over the buffers of all devices, summed in device order.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "exec/shard_map.h"
#include "exec/step_memory.h"
#include "exec/step_profile.h"
#include "ir/program.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

class WorkerPool;
std::shared_ptr<WorkerPool> make_worker_pool(int num_workers);  // 0: one per core

// What a VariableStore of these takes on a device, as it places them.
int64_t variable_store_bytes(const MeshPart& part, const std::vector<Variable>& variables);

// Storage of variables, shared by all programs of a model, and the step memory that these programs
// share. A variable has one buffer of part.num_shards(axes) shards; `axes` are those of its storage
// layout.
class VariableStore {
 public:
  // Allocates in the memory of `device`, or of the host when it is null. `processes`: the owners of
  // the parts of the mesh. Throws RuntimeFailure (exit 4) when allocation fails.
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
  // Returns where the shards of this process begin in the whole tensor.
  ShardMap map(int variable) const;
  // Address of shard 0 in the memory of the device; shard i follows at i * shard_bytes(variable).
  std::byte* data(int variable) { return addresses_[static_cast<size_t>(variable)]; }
  int64_t shard_bytes(int variable) const;
  // Copies all shards of this process, one after the other, to and from memory of the host.
  void copy_shards(int variable, std::byte* to) const;
  void write_shards(int variable, const std::byte* from);
  // Returns the whole tensor, of Variable::own_shape(). Collective where it is split over
  // processes.
  HostTensor read(int variable) const;
  // Writes the shards of this process out of the whole tensor; dtype and shape must match.
  void write(int variable, const HostTensor& value);
  void fill(int variable, double value);
  int64_t total_bytes() const;
  // Memory of the device, or of the host.
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

// An array of a dataset, cached whole in GPU memory. Batches are gathered from it on the GPU.
class DeviceTable {
 public:
  // Throws RuntimeFailure when allocation fails.
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

// A run computes one step or, on a GPU, several. The steps of a run are numbered from 0; each has
// its own inputs and outputs. Inputs must be set before every run.
class Executor {
 public:
  // Allocates memory and prepares every kernel on the device of the store. The store must outlive
  // the executor and hold the program's variables under the same indices. From a run's first input
  // to its end, no other program of the store may run. Throws RuntimeFailure (exit 4) when
  // allocation fails.
  // `is_prepared_later`: on a GPU the kernels of its constants compile on other threads until
  // prepare(), which must precede everything else, computes the constants.
  Executor(Program program, std::shared_ptr<WorkerPool> workers, VariableStore& variables,
           bool is_prepared_later = false);
  void prepare();
  ~Executor();

  const Program& program() const;
  // Returns the most steps of one run: 1 on the CPU, and when outputs are large.
  int max_steps() const;
  // The local rows of an input (along dimension 0); a scalar has one row.
  struct RowRange {
    int64_t first = 0, count = 1;
  };
  RowRange input_rows(int index) const;
  // Scatters the local rows of the global tensor to the shards of an input. `index` is into
  // Program::inputs; `data` has `num_bytes` in the input's dtype, row-major.
  void set_input(int index, const void* data, size_t num_bytes, int step = 0);
  // Returns host memory for the local rows when the shards in order are those rows (split over
  // dimension 0, or whole); else null.
  std::byte* input_data(int index, int step = 0);
  // Returns whether such an input may be gathered from device tables.
  bool can_gather(int index) const;
  // Gathers the input's local rows from these rows of `table` on the device. The table must outlive
  // the next run.
  void gather_input(int index, const DeviceTable& table, std::span<const int64_t> rows,
                    int step = 0);
  // On a GPU, begins to compile the kernels of the runs that take input i from tables[i], or from
  // the host where it is null, and returns. The first such run waits for them alone.
  void begin_compile(const std::vector<const DeviceTable*>& tables);
  // Later runs add the times of their kernels to `profile`; null ends that. On a GPU each kernel
  // then runs by itself, in order, and run() waits for it.
  void set_profile(StepProfile* profile);
  // Enqueues the run on a GPU and may return before it completes. Reading a result waits.
  void run(int steps = 1);
  // Returns the whole tensor of an output (index into Program::outputs) of a step of the last run.
  // Collective where the output is split over processes. `runs_ago` = 1 selects the run before the
  // last, without waiting for the last: only on a GPU, for small outputs. Outputs above some
  // kilobytes are valid only until another program of the store runs.
  HostTensor output(int index, int step = 0, int runs_ago = 0) const;
  double output_scalar(int index, int step = 0, int runs_ago = 0) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshtrain
