// From KernelSpecs to kernels of the processor. The file of a family of kernels has the `make` of
// their specs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/types.h"
#include "backend/fused_rows.h"
#include "backend/kernel_spec.h"

namespace meshtrain::cpu {

class CpuLowering {
 public:
  // Makes the kernel for what devices or processes do together (exec/cpu_collective.h).
  using MakeCollective =
      std::function<KernelPtr(const KernelSpec& spec, const std::string& path_of_step)>;

  // `scratch` must live as long as the kernels.
  explicit CpuLowering(ScratchAllocator& scratch, MakeCollective make_collective = nullptr)
      : scratch_(scratch), make_collective_(std::move(make_collective)) {}
  void lower(KernelSpecs specs);
  KernelList take() { return std::move(kernels_); }
  // The path of the step of each kernel so far; before take().
  std::vector<std::string> paths() const;

 private:
  void make(const StepSpec& spec);
#define MESHTRAIN_MAKE(Spec) void make(const Spec& spec);
  MESHTRAIN_KERNEL_SPECS(MESHTRAIN_MAKE)
#undef MESHTRAIN_MAKE

  void add(KernelPtr kernel);
  void add(KernelList list);
  // For kernels that have no loops for 16 bits: `elements` of them as float32 in scratch, converted
  // before (after) the kernel that is added next. Other types: the array itself.
  std::byte* read(DType dtype, const void* data, int64_t elements);
  std::byte* written(DType dtype, void* data, int64_t elements);

  ScratchAllocator& scratch_;
  MakeCollective make_collective_;
  ScratchNames names_;
  std::string path_;  // of the step
  KernelList kernels_;
  std::vector<std::pair<size_t, std::string>> steps_;  // first kernel and path
  size_t group_begin_ = 0;
  bool in_group_ = false;
  std::optional<std::vector<RowCall>> row_calls_;  // since BeginRowFusion
  KernelList before_, after_;  // conversions around the members of a group, or the next kernel
};

// Elements of a unit of an array that is computed element by element: `most`, but fewer of short
// arrays, which have one number a row where others have a row. Chains (chain.h) go row by row.
int64_t elements_of_unit(int64_t total, int64_t most);

// A shape, or an optimizer's spec, in the type that its loops compute in: 16 bits as float32.
template <class Shape>
Shape computed(Shape shape) {
  if (is_half(shape.dtype))
    shape.dtype = DType::kFloat32;
  return shape;
}

}  // namespace meshtrain::cpu
