#include "exec/lower.h"

#include <algorithm>
#include <map>

namespace meshtrain {

StepContext::StepContext(const Program& program_, const ProgramStep& step_,
                         const BufferMemory& memory, KernelSpecs& specs_, int64_t only)
    : program(program_), step(step_), specs(specs_), memory_(memory), only_(only) {
  if (only != kNone) {
    devices_ = {only};
    return;
  }
  const DeviceMesh& mesh = program.part.local();
  AxisMask used = 0, summed = 0;
  for (int b : step.outputs) {
    used |= program.buffers[b].axes;
    summed |= memory.fused_sums[b];
  }
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if ((used >> axis & 1u) == 0 || mesh.axis_size(axis) == 1) {
      continue;
    }
    ((summed >> axis & 1u) != 0 ? summed_axes_ : axes_).push_back(axis);
  }
  const int64_t num_shards = mesh.size_of(axes_);
  for (int64_t p = 0; p < num_shards; ++p) {
    devices_.push_back(device_of_shard(mesh, used & ~summed, p));
  }
}

std::byte* StepContext::base(int buffer) const {
  const Buffer& b = program.buffers[buffer];
  const int64_t first = only_ == kNone ? 0 : program.part.shard(b.axes, only_);
  return memory_.bases[buffer] + first * b.shard_bytes;
}

std::byte* StepContext::shard(const Buffer& buffer, std::byte* base, int64_t shard) const {
  if (only_ != kNone)
    return base;
  return base + program.part.shard(buffer.axes, device(shard)) * buffer.shard_bytes;
}

std::vector<int64_t> StepContext::start(const Buffer& buffer, int64_t shard) const {
  const MeshPart& part = program.part;
  return local_start(buffer.global_shape, buffer.sharding, part.mesh(), part.device(device(shard)));
}

bool StepContext::is_uniform() const {
  AxisMask all = 0;
  for (int axis : axes_)
    all |= AxisMask{1} << axis;
  const auto has_all = [&](int b) { return (program.buffers[b].axes & all) == all; };
  return std::all_of(step.inputs.begin(), step.inputs.end(), has_all) &&
         std::all_of(step.outputs.begin(), step.outputs.end(), has_all);
}

View StepContext::view_over(const std::vector<int>& axes, const Buffer& buffer, std::byte* base,
                            size_t rank) const {
  View out{base, buffer.dtype, {}, {}};
  // Distance of shards along each axis: shards are numbered over the buffer's axes in mesh order.
  int64_t distance = num_elements(buffer.shape);
  std::map<int, int64_t> axis_stride;
  const DeviceMesh& mesh = program.part.local();
  for (int axis = mesh.num_axes(); axis-- > 0;) {
    if ((buffer.axes >> axis & 1u) == 0)
      continue;
    axis_stride[axis] = distance;
    distance *= mesh.axis_size(axis);
  }
  for (int axis : axes) {
    out.shape.push_back(mesh.axis_size(axis));
    const auto found = axis_stride.find(axis);
    out.strides.push_back(found == axis_stride.end() ? 0 : found->second);
  }
  MESHTRAIN_CHECK(rank >= buffer.shape.size());
  const size_t missing = rank - buffer.shape.size();
  const std::vector<int64_t> strides = row_major_strides(buffer.shape);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = d < missing ? 1 : buffer.shape[d - missing];
    out.shape.push_back(size);
    out.strides.push_back(size == 1 ? 0 : strides[d - missing]);
  }
  return out;
}

namespace {

template <class T>
const T& attr(const ProgramStep& step, std::string_view name) {
  const auto found = step.attrs.find(name);
  MESHTRAIN_CHECK(found != step.attrs.end(), "{} has no attribute `{}`", step.path, name);
  const T* value = std::get_if<T>(&found->second);
  MESHTRAIN_CHECK(value != nullptr, "attribute `{}` of {} has another type", name, step.path);
  return *value;
}

}  // namespace

int64_t StepContext::attr_int(std::string_view name) const {
  return attr<int64_t>(step, name);
}
double StepContext::attr_double(std::string_view name) const {
  const auto found = step.attrs.find(name);
  if (found != step.attrs.end()) {
    if (const auto* whole = std::get_if<int64_t>(&found->second))
      return static_cast<double>(*whole);
  }
  return attr<double>(step, name);
}
const std::string& StepContext::attr_string(std::string_view name) const {
  return attr<std::string>(step, name);
}
const std::vector<int64_t>& StepContext::attr_ints(std::string_view name) const {
  return attr<std::vector<int64_t>>(step, name);
}

LowerOp lowering_of(const OpDef& op) {
  static const std::map<std::string_view, LowerOp> table = [] {
    std::map<std::string_view, LowerOp> functions;
    for (const auto& family : {shape_lowerings, math_lowerings, conv_lowerings, warp_lowerings,
                               indexed_lowerings, attention_lowerings, head_lowerings,
                               rnn_lowerings, optimizer_lowerings, collective_lowerings}) {
      for (const OpLowering& entry : family()) {
        const bool is_new = functions.emplace(entry.op, entry.lower).second;
        MESHTRAIN_CHECK(is_new, "op {} is lowered twice", entry.op);
      }
    }
    for (const OpDef* op_def : all_ops()) {
      if (is_tape_op(op_def->name))
        functions.emplace(op_def->name, lower_tape);
    }
    return functions;
  }();
  const auto found = table.find(op.name);
  return found == table.end() ? nullptr : found->second;
}

void lower_step(const Program& program, const ProgramStep& step, const BufferMemory& memory,
                KernelSpecs& specs, const std::vector<Access>& last_reads) {
  const auto holds_nothing = [&](int b) { return program.buffers[b].shard_bytes == 0; };
  if (std::all_of(step.outputs.begin(), step.outputs.end(), holds_nothing))
    return;
  const LowerOp lower = step.fused != kNone ? lower_tape : lowering_of(*step.op);
  MESHTRAIN_CHECK(lower != nullptr, "{}: there is no kernel for op `{}`", step.path, step.op->name);
  const bool apart = program.fixed_reductions && !step.op->collective;
  AxisMask used = 0;
  for (const int b : step.outputs)
    used |= program.buffers[b].axes;
  const int64_t shards = apart ? program.part.num_shards(used) : 1;
  for (int64_t p = 0; p < shards; ++p) {
    specs.emplace_back(StepSpec{step.path, last_reads});
    StepContext context(program, step, memory, specs,
                        apart ? device_of_shard(program.part.local(), used, p) : kNone);
    lower(context);
  }
}

KernelSpecs lower_steps(const Program& program, std::span<const ProgramStep> steps,
                        const BufferMemory& memory) {
  KernelSpecs specs;
  for (const ProgramStep& step : steps)
    lower_step(program, step, memory, specs);
  return specs;
}

}  // namespace meshtrain
