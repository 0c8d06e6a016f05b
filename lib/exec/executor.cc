#include "exec/executor.h"

#include <utility>

#include "comm/heartbeat_monitor.h"
#include "exec/executor_impl.h"
#include "exec/memory.h"

namespace meshtrain {

ShardMap shard_map(const Program& program, int buffer) {
  const Buffer& b = program.buffers[buffer];
  return ShardMap(program.part, b.sharding, b.global_shape, b.dtype);
}

Executor::Impl::Impl(Program p, const VariableStore& variables)
    : program(std::move(p)), processes(variables.processes()) {
  for (const Program::NamedBuffer& input : program.inputs) {
    inputs.push_back(shard_map(program, input.buffer));
  }
  for (const Program::NamedBuffer& output : program.outputs) {
    outputs.push_back(shard_map(program, output.buffer));
  }
}

HostTensor Executor::Impl::whole_output(int index, const std::byte* shards) const {
  const Buffer& b = program.buffers[program.outputs[static_cast<size_t>(index)].buffer];
  return gather_whole(program.part, b.sharding, b.global_shape, b.dtype, shards,
                      processes.group.get());
}

std::vector<std::byte*> buffer_addresses(const Program& program, std::byte* arena,
                                         VariableStore& variables) {
  std::vector<std::byte*> out;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.variable == kNone) {
      MESHTRAIN_CHECK(
          buffer.offset >= 0 &&
              buffer.offset + buffer.shard_bytes * buffer.num_shards <= program.arena_bytes,
          "a buffer of {} bytes at {} in an arena of {}", buffer.shard_bytes * buffer.num_shards,
          buffer.offset, program.arena_bytes);
      out.push_back(arena + buffer.offset);
      continue;
    }
    MESHTRAIN_CHECK(variables.shard_bytes(buffer.variable) == buffer.shard_bytes,
                    "shards of {} have {} bytes in the store and {} in the program",
                    program.variables[buffer.variable].path, variables.shard_bytes(buffer.variable),
                    buffer.shard_bytes);
    out.push_back(variables.data(buffer.variable));
  }
  return out;
}

void BufferPlaces::add(const Buffer& buffer, int index) {
  offsets[static_cast<size_t>(index)] = bytes;
  bytes += aligned_bytes(buffer.shard_bytes * buffer.num_shards);
}

void BufferPlaces::move(std::byte* memory, std::vector<std::byte*>& addresses) const {
  for (size_t b = 0; b < offsets.size(); ++b) {
    if (offsets[b] != kNone)
      addresses[b] = memory + offsets[b];
  }
}

BufferPlaces constant_places(const Program& program) {
  BufferPlaces places{std::vector<int64_t>(program.buffers.size(), kNone)};
  for (const ProgramStep& step : program.prologue) {
    for (const int b : step.outputs) {
      if (program.buffers[b].variable == kNone)
        places.add(program.buffers[b], b);
    }
  }
  return places;
}

Executor::Executor(Program program, std::shared_ptr<WorkerPool> workers, VariableStore& variables,
                   bool is_prepared_later)
    : impl_(variables.device() != nullptr
                ? make_gpu_executor(std::move(program), variables, is_prepared_later)
                : make_cpu_executor(std::move(program), std::move(workers), variables)) {}

Executor::~Executor() = default;

const Program& Executor::program() const {
  return impl_->program;
}

int Executor::max_steps() const {
  return impl_->max_steps();
}

Executor::RowRange Executor::input_rows(int index) const {
  const ShardMap& map = impl_->inputs.at(static_cast<size_t>(index));
  return {map.first_row(), map.num_rows()};
}

void Executor::set_input(int index, const void* data, size_t num_bytes, int step) {
  const ShardMap& map = impl_->inputs.at(static_cast<size_t>(index));
  MESHTRAIN_CHECK(static_cast<int64_t>(num_bytes) == map.local_rows_bytes(),
                  "input `{}` takes {} bytes, not {}",
                  program().inputs[static_cast<size_t>(index)].name, map.local_rows_bytes(),
                  num_bytes);
  impl_->set_input(index, data, step);
}

std::byte* Executor::input_data(int index, int step) {
  const bool is_whole = impl_->inputs.at(static_cast<size_t>(index)).is_whole();
  return is_whole ? impl_->input_data(index, step) : nullptr;
}

bool Executor::can_gather(int index) const {
  return impl_->gathers() && impl_->inputs.at(static_cast<size_t>(index)).is_whole();
}

void Executor::gather_input(int index, const DeviceTable& table, std::span<const int64_t> rows,
                            int step) {
  MESHTRAIN_CHECK(can_gather(index));
  impl_->gather_input(index, table, rows, step);
}

void Executor::prepare() {
  impl_->prepare();
}

void Executor::begin_compile(const std::vector<const DeviceTable*>& tables) {
  MESHTRAIN_CHECK(tables.size() == impl_->inputs.size());
  impl_->begin_compile(tables);
}

void Executor::set_profile(StepProfile* profile) {
  impl_->profile = profile;
}

void Executor::run(int steps) {
  if (impl_->profile == nullptr) {
    impl_->run(steps);
  } else {
    impl_->run_profiled(steps, *impl_->profile);
  }
  impl_->last_steps[1] = std::exchange(impl_->last_steps[0], steps);
}

HostTensor Executor::output(int index, int step, int runs_ago) const {
  MESHTRAIN_CHECK(index >= 0 && static_cast<size_t>(index) < impl_->outputs.size());
  MESHTRAIN_CHECK(runs_ago == 0 || runs_ago == 1);
  HeartbeatMonitor* const monitor = impl_->processes.monitor.get();
  if (monitor != nullptr)
    monitor->wait_for("reading the results of steps", impl_->last_steps[runs_ago]);
  HostTensor whole = impl_->output(index, step, runs_ago);
  if (monitor != nullptr)
    monitor->leave();
  return whole;
}

double Executor::output_scalar(int index, int step, int runs_ago) const {
  const HostTensor value = output(index, step, runs_ago);
  MESHTRAIN_CHECK(value.size() == 1, "output `{}` has {} elements",
                  program().outputs[static_cast<size_t>(index)].name, value.size());
  return value.at(0);
}

}  // namespace meshtrain
