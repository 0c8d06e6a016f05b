// From a step of a Program to the kernels that compute it on all its pieces.
//
// The mesh axes of a step become dimensions of its arrays: a value split over `data` and used by a
// step over `data` and `model` has a leading dimension for each, with stride 0 along `model`. So
// one kernel computes all pieces, and what lies side by side is merged as far as strides allow.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "backend/kernel_maker.h"
#include "ir/program.h"

namespace meshtrain {

// Where the pieces of each buffer of a program are.
struct BufferMemory {
  std::vector<std::byte*> bases;    // of piece 0
  std::vector<AxisMask> presummed;  // of each buffer: find_presummed
};

// Makes the kernels of a step: of all pieces together, or with fixed reductions for one piece after
// the other. Throws InternalError naming the step when there is none for it.
void prepare_step(const Program& program, const ProgramStep& step, const BufferMemory& memory,
                  KernelMaker& maker);

// What the functions below work on.
class StepContext {
 public:
  // `only`: a local device, where only the pieces of that one are seen.
  StepContext(const Program& program, const ProgramStep& step, const BufferMemory& memory,
              KernelMaker& maker, int64_t only = kNone);

  const Program& program;
  const ProgramStep& step;
  KernelMaker& maker;

  const Buffer& input(size_t i) const { return program.buffers[step.inputs.at(i)]; }
  const Buffer& output(size_t i) const { return program.buffers[step.outputs.at(i)]; }
  std::byte* input_base(size_t i) const { return base(step.inputs.at(i)); }
  std::byte* output_base(size_t i) const { return base(step.outputs.at(i)); }

  // Mesh axes with more than one local position over which the results differ, in mesh order.
  const std::vector<int>& axes() const { return axes_; }
  // Pending axes whose terms this step adds up itself (presum.h); not among axes().
  const std::vector<int>& summed_axes() const { return summed_axes_; }
  AxisMask presummed_of_input(size_t i) const { return memory_.presummed[step.inputs.at(i)]; }
  // Pieces to compute, and for each the local device that stands for it.
  int64_t num_pieces() const { return static_cast<int64_t>(devices_.size()); }
  int64_t device(int64_t piece) const { return devices_[piece]; }
  std::byte* piece(const Buffer& buffer, std::byte* base, int64_t piece) const;
  std::byte* input_piece(size_t i, int64_t p) const { return piece(input(i), input_base(i), p); }
  std::byte* output_piece(size_t i, int64_t p) const { return piece(output(i), output_base(i), p); }
  // Where this piece begins in the global tensor, per dimension.
  std::vector<int64_t> start(const Buffer& buffer, int64_t piece) const;
  // Whether all operands (first `count`) and results have every axis of the step: then piece p of
  // each belongs to piece p of the others, and together they are one array.
  bool is_uniform() const;

  // The pieces of a buffer as one array: the axes, then the local dimensions aligned at the last of
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

// How the kernels of one op are made.
struct Preparation {
  std::string_view op;
  void (*add)(StepContext&);
};

// The families, one file each; prepare.cc looks an op up in all of them. Elementwise ops and fused
// steps are no entries: whatever a tape can hold is prepared by add_tape.
void add_tape(StepContext& context);                 // prepare_elementwise.cc
std::vector<Preparation> shape_preparations();       // prepare_shape.cc
std::vector<Preparation> math_preparations();        // prepare_math.cc: reductions, einsum, scans
std::vector<Preparation> conv_preparations();        // prepare_conv.cc: also pools, channel sums
std::vector<Preparation> warp_preparations();        // prepare_warp.cc
std::vector<Preparation> indexed_preparations();     // prepare_indexed.cc: need a piece's start
std::vector<Preparation> optimizer_preparations();   // prepare_optimizer.cc
std::vector<Preparation> collective_preparations();  // prepare_collective.cc

}  // namespace meshtrain
