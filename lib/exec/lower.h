// Lowers the steps of a Program to the KernelSpecs that compute them on all their shards.
//
// The mesh axes of a step become dimensions of its arrays. A value that is split over `data` and
// used by a step over `data` and `model` has a leading dimension for each, with stride 0 along
// `model`. So one kernel computes all shards, and dimensions are merged as far as strides allow.
#pragma once

#include <span>
#include <string_view>

#include "backend/kernel_spec.h"
#include "ir/program.h"

namespace meshtrain {

// Inputs of lowering beside the program.
struct BufferMemory {
  std::vector<std::byte*> bases;     // of shard 0 of each buffer
  std::vector<AxisMask> fused_sums;  // of each buffer: find_fused_sums
  bool has_gathers = false;          // the backend has AllGatherSpec, ReduceScatterSpec
};

// Adds the specs of a step: for all shards together or, with fixed reductions, for one shard after
// the other. Throws InternalError naming the step when its op has no lowering. `last_reads`: memory
// that no later step reads.
void lower_step(const Program& program, const ProgramStep& step, const BufferMemory& memory,
                KernelSpecs& specs, const std::vector<Access>& last_reads = {});
KernelSpecs lower_steps(const Program& program, std::span<const ProgramStep> steps,
                        const BufferMemory& memory);

// One step, as the lowering of its op needs it.
class StepContext {
 public:
  // `only`: lower for the shards of this local device alone.
  StepContext(const Program& program, const ProgramStep& step, const BufferMemory& memory,
              KernelSpecs& specs, int64_t only = kNone);

  const Program& program;
  const ProgramStep& step;
  KernelSpecs& specs;

  void add(KernelSpec spec) { specs.push_back(std::move(spec)); }
  std::byte* scratch(int64_t bytes) { return add_scratch(specs, bytes); }
  bool has_gathers() const { return memory_.has_gathers; }
  // The least number of tokens whose logits exist at once; GPUs, which have gathers, need more.
  int64_t loss_tokens() const { return memory_.has_gathers ? 4096 : 256; }
  // Whether a copy of an operand costs less than a product whose lines are not whole accesses.
  bool pads_products() const { return memory_.has_gathers; }
  const Buffer& input(size_t i) const { return program.buffers[step.inputs.at(i)]; }
  const Buffer& output(size_t i) const { return program.buffers[step.outputs.at(i)]; }
  std::byte* input_base(size_t i) const { return base(step.inputs.at(i)); }
  std::byte* output_base(size_t i) const { return base(step.outputs.at(i)); }

  // Mesh axes with several local positions over which the results differ, in mesh order.
  const std::vector<int>& axes() const { return axes_; }
  // Partial axes whose terms this step adds up itself (partial_sum_fusion.h); not among axes().
  const std::vector<int>& summed_axes() const { return summed_axes_; }
  AxisMask fused_sums_of_input(size_t i) const { return memory_.fused_sums[step.inputs.at(i)]; }
  // The shards to compute; device(shard) is the local device that represents a shard.
  int64_t num_shards() const { return static_cast<int64_t>(devices_.size()); }
  int64_t device(int64_t shard) const { return devices_[shard]; }
  std::byte* shard(const Buffer& buffer, std::byte* base, int64_t shard) const;
  std::byte* input_shard(size_t i, int64_t p) const { return shard(input(i), input_base(i), p); }
  std::byte* output_shard(size_t i, int64_t p) const { return shard(output(i), output_base(i), p); }
  // Returns the start of a shard in the global tensor, per dimension.
  std::vector<int64_t> start(const Buffer& buffer, int64_t shard) const;
  // Returns whether all operands and results have every axis of the step. Then shard p of each
  // belongs to shard p of the others, and the shards of each are one array.
  bool is_uniform() const;

  // Returns the shards of a buffer as one array: the axes, then `rank` local dimensions, aligned at
  // the last. Missing dimensions have size 1; dimensions of size 1 have stride 0.
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

// How an op is lowered; ops that are the same to a backend share the function.
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
std::vector<OpLowering> attention_lowerings();   // lower_attention.cc
std::vector<OpLowering> head_lowerings();        // lower_head.cc
std::vector<OpLowering> rnn_lowerings();         // lower_rnn.cc
std::vector<OpLowering> optimizer_lowerings();   // lower_optimizer.cc
std::vector<OpLowering> collective_lowerings();  // lower_collective.cc

// Lowerings that identify ops elsewhere.
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

// Lowers an einsum of one or two operands to copies, reductions and matrix products: the product,
// summed over all labels that `out` does not have. Every label of `out` must be in an operand, with
// the same size.
void lower_products(const std::vector<LabelledView>& operands, const LabelledView& out,
                    KernelSpecs& specs);

}  // namespace meshtrain
