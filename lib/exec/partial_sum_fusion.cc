#include "exec/partial_sum_fusion.h"

#include <algorithm>

#include "exec/lower.h"

namespace meshtrain {
namespace {

// True when the step is a collective that resolves every partial sum of the buffer.
bool resolves(const Program& program, const ProgramStep& step, int buffer) {
  if (step.op == nullptr || !step.op->collective || step.fused != kNone)
    return false;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.inputs[i] != buffer)
      continue;
    if (program.buffers[step.outputs[i]].sharding.partial != 0)
      return false;
  }
  return true;
}

// The shards at position 0 along the partial axes are the first ones, side by side.
bool partial_axes_are_major(const Buffer& buffer) {
  const AxisMask partial = buffer.sharding.partial;
  const AxisMask others = buffer.axes & ~partial;
  // Axes count from the major one at bit 0.
  for (int axis = 0; axis < kMaxAxes; ++axis) {
    const bool has_other_before = (others & ((AxisMask{1} << axis) - 1)) != 0;
    if ((partial >> axis & 1u) != 0 && has_other_before)
      return false;
  }
  return true;
}

}  // namespace

std::vector<AxisMask> find_fused_sums(const Program& program) {
  std::vector<AxisMask> out(program.buffers.size(), 0);
  if (program.fixed_reductions)
    return out;
  for (const ProgramStep& step : program.steps) {
    if (step.fused != kNone || !step.op->sums_over_shards)
      continue;
    const Buffer& buffer = program.buffers[step.outputs[0]];
    const Sharding& sharding = buffer.sharding;
    if (sharding.partial != 0 && sharding.combine == Combine::kSum && buffer.variable == kNone &&
        partial_axes_are_major(buffer)) {
      out[step.outputs[0]] = sharding.partial;
    }
  }
  for (const ProgramStep& step : program.steps) {
    for (int b : step.inputs) {
      if (out[b] != 0 && !resolves(program, step, b))
        out[b] = 0;
    }
  }
  for (const Program::NamedBuffer& output : program.outputs)
    out[output.buffer] = 0;
  return out;
}

}  // namespace meshtrain
