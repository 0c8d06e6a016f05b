// From the steps of a Program to the KernelSpecs that compute them on all their shards.
//
// The mesh axes of a step become dimensions of its arrays: a value split over `data` and used by a
// step over `data` and `model` has a leading dimension for each, with stride 0 along `model`. So
// one kernel computes all shards, and what lies side by side is merged as far as strides allow.
#pragma once

#include <span>
#include <string_view>

#include "backend/kernel_spec.h"
#include "ir/program.h"

namespace meshtrain {

// What the specs of a program depend on besides.
struct BufferMemory {
  std::vector<std::byte*> bases;     // of shard 0 of each buffer
  std::vector<AxisMask> fused_sums;  // of each buffer: find_fused_sums
  bool has_gathers = false;          // whether the backend makes AllGatherSpec, ReduceScatterSpec
};

// Adds the specs of a step: of all shards together, or with fixed reductions for one shard after
// the other. Throws InternalError naming the step when its op has no lowering. `last_reads`: memory
// that nothing reads behind the step.
void lower_step(const Program& program, const ProgramStep& step, const BufferMemory& memory,
                KernelSpecs& specs, const std::vector<Access>& last_reads = {});
KernelSpecs lower_steps(const Program& program, std::span<const ProgramStep> steps,
                        const BufferMemory& memory);

// What the functions below work on.
class StepContext {
 public:
  // `only`: a local device, where only the shards of that one are seen.
  StepContext(const Program& program, const ProgramStep& step, const BufferMemory& memory,
              KernelSpecs& specs, int64_t only = kNone);

  const Program& program;
  const ProgramStep& step;
  KernelSpecs& specs;

  void add(KernelSpec spec) { specs.push_back(std::move(spec)); }
  std::byte* scratch(int64_t bytes) { return add_scratch(specs, bytes); }
  bool has_gathers() const { return memory_.has_gathers; }
  const Buffer& input(size_t i) const { return program.buffers[step.inputs.at(i)]; }
  const Buffer& output(size_t i) const { return program.buffers[step.outputs.at(i)]; }
  std::byte* input_base(size_t i) const { return base(step.inputs.at(i)); }
  std::byte* output_base(size_t i) const { return base(step.outputs.at(i)); }

  // Mesh axes with more than one local position over which the results differ, in mesh order.
  const std::vector<int>& axes() const { return axes_; }
  // Partial axes whose terms this step adds up itself (partial_sum_fusion.h); not among axes().
  const std::vector<int>& summed_axes() const { return summed_axes_; }
  AxisMask fused_sums_of_input(size_t i) const { return memory_.fused_sums[step.inputs.at(i)]; }
  // Shards to compute, and for each the local device that stands for it.
  int64_t num_shards() const { return static_cast<int64_t>(devices_.size()); }
  int64_t device(int64_t shard) const { return devices_[shard]; }
  std::byte* shard(const Buffer& buffer, std::byte* base, int64_t shard) const;
  std::byte* input_shard(size_t i, int64_t p) const { return shard(input(i), input_base(i), p); }
  std::byte* output_shard(size_t i, int64_t p) const { return shard(output(i), output_base(i), p); }
  // Where this shard begins in the global tensor, per dimension.
  std::vector<int64_t> start(const Buffer& buffer, int64_t shard) const;
  // Whether all operands (first `count`) and results have every axis of the step: then shard p of
  // each belongs to shard p of the others, and together they are one array.
  bool is_uniform() const;

  // The shards of a buffer as one array: the axes, then the local dimensions aligned at the last of
  // `rank` (missing ones have size 1, and stride 0 as all of size 1).
  View view(const Buffer& buffer, std::byte* base, size_t rank) const {
    return view_over(axes_, buffer, base, rank);
  }
  View view_over(const std::vector<int>& axes, const Buffer& buffer, std::byte* base,
                 size_t rank) const;
  View input_view(size_t i) const { return view(input(i), input_base(i), input(i).shape.size()); }
  View output_view(size_t i) const {
    return view(output(i), output_base(i), output(i).shape.size());
  }
  size_t num_axes() const { return axes_.size(); }

  int64_t attr_int(std::string_view name) const;
  double attr_double(std::string_view name) const;
  const std::string& attr_string(std::string_view name) const;
  const std::vector<int64_t>& attr_ints(std::string_view name) const;
  bool has_attr(std::string_view name) const { return step.attrs.find(name) != step.attrs.end(); }

 private:
  std::byte* base(int buffer) const;

  const BufferMemory& memory_;
  int64_t only_;
  std::vector<int> axes_, summed_axes_;
  std::vector<int64_t> devices_;
};

// How an op is lowered; functions are equal where ops are the same to a backend.
using LowerOp = void (*)(StepContext&);
// Null where there is none.
LowerOp lowering_of(const OpDef& op);

struct OpLowering {
  std::string_view op;
  LowerOp lower;
};

// One line an op, in the file of its family. Elementwise ops and fused steps have none: whatever a
// tape can hold is lowered by lower_tape.
void lower_tape(StepContext& context);           // lower_elementwise.cc
std::vector<OpLowering> shape_lowerings();       // lower_shape.cc
std::vector<OpLowering> math_lowerings();        // lower_math.cc: reductions, einsum, scans
std::vector<OpLowering> conv_lowerings();        // lower_conv.cc: also pools, channel sums
std::vector<OpLowering> warp_lowerings();        // lower_warp.cc
std::vector<OpLowering> indexed_lowerings();     // lower_indexed.cc: need a shard's start
std::vector<OpLowering> optimizer_lowerings();   // lower_optimizer.cc
std::vector<OpLowering> collective_lowerings();  // lower_collective.cc

// Those by which others know an op.
void lower_copy(StepContext& context);
void lower_constant(StepContext& context);
void lower_all_gather(StepContext& context);
void lower_all_reduce(StepContext& context);
void lower_reduce_scatter(StepContext& context);
void lower_einsum(StepContext& context);
void lower_reduce_sum(StepContext& context);
void lower_conv_wgrad(StepContext& context);
void lower_moments(StepContext& context);
void lower_channel_sums(StepContext& context);

// out[labels] = sum over the labels that it lacks of the product of the one or two operands, as
// copies, reductions and matrix products. Labels of the operands that `out` has must be of its
// sizes; every label of `out` is in an operand.
void lower_products(const std::vector<LabelledView>& operands, const LabelledView& out,
                    KernelSpecs& specs);

}  // namespace meshtrain
