#include "exec/all_steps.h"

namespace meshtrain {
namespace {

// By buffer: the last step that reads it. Outputs of the program are read behind all steps.
std::vector<int> last_readers(const Program& program) {
  std::vector<int> out(program.buffers.size(), kNone);
  for (size_t s = 0; s < program.steps.size(); ++s) {
    for (const int b : program.steps[s].inputs)
      out[b] = static_cast<int>(s);
  }
  for (const Program::NamedBuffer& output : program.outputs)
    out[output.buffer] = static_cast<int>(program.steps.size());
  return out;
}

// `dying`: what the step is the last to read.
void add_step(const Program& program, const ProgramStep& step, const std::vector<int>& dying,
              const BufferMemory& memory, KernelSpecs& specs) {
  std::vector<Access> last;
  for (const int b : dying) {
    const Buffer& buffer = program.buffers[b];
    last.push_back({memory.bases[b], memory.bases[b] + buffer.shard_bytes * buffer.num_shards});
  }
  lower_step(program, step, memory, specs, last);
}

// One row group, steps [first, end). What only the group reads has no memory (passes/memory.h).
void add_rows(const Program& program, size_t first, size_t end, const std::vector<int>& last_reader,
              const std::vector<std::vector<int>>& dying, BufferMemory& memory,
              KernelSpecs& specs) {
  std::vector<const std::byte*> read_later;
  // An address outside of every device's memory, and of that of gpu_memory.cc.
  std::byte* nowhere = reinterpret_cast<std::byte*>(int64_t{1} << 62);
  for (size_t s = first; s < end; ++s) {
    for (const int b : program.steps[s].outputs) {
      const Buffer& buffer = program.buffers[b];
      if (last_reader[b] >= static_cast<int>(end)) {
        read_later.push_back(memory.bases[b]);
      } else {
        memory.bases[b] = nowhere;
        nowhere += buffer.shard_bytes * buffer.num_shards + 1;
      }
    }
  }
  specs.emplace_back(BeginRowFusion{});
  for (size_t s = first; s < end; ++s)
    add_step(program, program.steps[s], dying[s], memory, specs);
  specs.emplace_back(EndRowFusion{std::move(read_later)});
}

}  // namespace

std::vector<std::vector<int>> last_reads(const Program& program) {
  std::vector<int> last = last_readers(program);
  for (const ProgramStep& step : program.prologue) {
    for (const int b : step.outputs)  // which the next run reads
      last[b] = kNone;
  }
  const int end = static_cast<int>(program.steps.size());
  std::vector<std::vector<int>> out(program.steps.size());
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (last[b] != kNone && last[b] != end && buffer.variable == kNone && !buffer.is_input &&
        program.steps[last[b]].axes == buffer.axes)
      out[last[b]].push_back(static_cast<int>(b));
  }
  return out;
}

KernelSpecs lower_all_steps(const Program& program, BufferMemory memory) {
  const std::vector<std::vector<int>> dying = last_reads(program);
  const std::vector<int> last_reader = last_readers(program);
  KernelSpecs specs;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const int rows = program.steps[s].row_fusion;
    if (rows != kNone) {
      const size_t first = s;
      while (s + 1 < program.steps.size() && program.steps[s + 1].row_fusion == rows)
        ++s;
      add_rows(program, first, s + 1, last_reader, dying, memory, specs);
    } else {
      add_step(program, program.steps[s], dying[s], memory, specs);
    }
  }
  return specs;
}

KernelSpecs lower_gpu_steps(const Program& program, BufferMemory memory) {
  memory.has_gathers = true;
  return lower_all_steps(program, std::move(memory));
}

}  // namespace meshtrain
