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

void add_gpu_steps(const Program& program, const BufferMemory& memory, gpu::GpuMaker& maker) {
  const std::vector<std::vector<int>> dying = last_reads(program);
  for (size_t s = 0; s < program.steps.size(); ++s) {
    std::vector<Access> last;
    for (const int b : dying[s]) {
      const Buffer& buffer = program.buffers[b];
      last.push_back({memory.bases[b], memory.bases[b] + buffer.piece_bytes * buffer.num_pieces});
    }
    maker.set_last_reads(std::move(last));
    prepare_step(program, program.steps[s], memory, maker);
  }
  maker.set_last_reads({});
}

}  // namespace meshtrain
