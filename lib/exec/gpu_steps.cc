#include "exec/gpu_steps.h"

#include <algorithm>

namespace meshtrain {

std::vector<std::vector<int>> last_reads(const Program& program) {
  std::vector<int> last(program.buffers.size(), kNone);
  for (size_t s = 0; s < program.steps.size(); ++s) {
    for (const int b : program.steps[s].inputs)
      last[b] = static_cast<int>(s);
  }
  const auto keep = [&](int b) { last[b] = kNone; };
  for (const ProgramStep& step : program.prologue)
    std::for_each(step.outputs.begin(), step.outputs.end(), keep);
  for (const Program::NamedBuffer& output : program.outputs)
    keep(output.buffer);
  std::vector<std::vector<int>> out(program.steps.size());
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (last[b] != kNone && buffer.variable == kNone && !buffer.is_input &&
        program.steps[last[b]].axes == buffer.axes)
      out[last[b]].push_back(static_cast<int>(b));
  }
  return out;
}

namespace {

// Of the results of steps [first, end), where those are that others read.
std::vector<const std::byte*> read_later(const Program& program, const BufferMemory& memory,
                                         const std::vector<int>& last_reader, size_t first,
                                         size_t end) {
  std::vector<const std::byte*> out;
  for (size_t s = first; s < end; ++s) {
    for (const int b : program.steps[s].outputs) {
      if (last_reader[b] >= static_cast<int>(end) || program.buffers[b].variable != kNone)
        out.push_back(memory.bases[b]);
    }
  }
  return out;
}

// Outputs of the program are read behind all steps.
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

}  // namespace

void add_gpu_steps(const Program& program, const BufferMemory& memory, gpu::GpuMaker& maker) {
  const std::vector<std::vector<int>> dying = last_reads(program);
  const std::vector<int> last_reader = last_readers(program);
  size_t first = 0;  // of the row group that a step is in
  const auto rows_of = [&](size_t s) {
    return s < program.steps.size() ? program.steps[s].rows : kNone;
  };
  for (size_t s = 0; s < program.steps.size(); ++s) {
    std::vector<Access> last;
    for (const int b : dying[s]) {
      const Buffer& buffer = program.buffers[b];
      last.push_back({memory.bases[b], memory.bases[b] + buffer.piece_bytes * buffer.num_pieces});
    }
    maker.set_last_reads(std::move(last));
    const int rows = rows_of(s);
    if (rows != kNone && (s == 0 || rows_of(s - 1) != rows)) {
      first = s;
      maker.begin_rows();
    }
    prepare_step(program, program.steps[s], memory, maker);
    if (rows != kNone && rows_of(s + 1) != rows)
      maker.end_rows(read_later(program, memory, last_reader, first, s + 1));
  }
  maker.set_last_reads({});
}

}  // namespace meshtrain
