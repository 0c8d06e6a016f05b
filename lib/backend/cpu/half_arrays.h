// 16-bit arrays as float32 ones, for kernels without loops for 16 bits. Operands are widened into
// scratch before the kernel, and results are rounded from scratch after it.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// Arrays of one size. Adjacent arrays are adjacent in scratch, too.
class HalfArrays {
 public:
  HalfArrays(DType dtype, int64_t elements) : dtype_(dtype), elements_(elements) {}

  // Null, or one that is there, changes nothing. All are added before the first is asked for.
  void add(const std::byte* array);
  void take_scratch(ScratchAllocator& scratch);

  // The float32 array for one that was added; null for null.
  std::byte* wide(const std::byte* array) const;
  // Kernels that convert all of them one way or the other.
  KernelPtr widen() const { return convert(true); }
  KernelPtr narrow() const { return convert(false); }

 private:
  struct Run {
    const std::byte* begin;
    int64_t count;
    std::byte* wide;
  };
  int64_t bytes() const { return elements_ * 2; }
  KernelPtr convert(bool to_wide) const;

  DType dtype_;
  int64_t elements_;
  std::vector<const std::byte*> arrays_;
  std::vector<Run> runs_;  // by address
};

}  // namespace meshtrain::cpu
