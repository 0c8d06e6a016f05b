// The inner loops of simd/cross_entropy.cc, for each level of the instruction set.
#pragma once

#include <cstdint>

#include "backend/cpu/kernel_table.h"

namespace meshtrain::cpu {

// The logits of a token (ir/ops/linear_cross_entropy.cc).
struct CrossEntropyRow {
  void* logits = nullptr;
  int64_t classes = 0;
  int64_t id = -1;  // among these classes; outside: the id is elsewhere, or no class
  // Read by the gradient, which takes the place of the logits.
  double weight = 0, lse = 0;
  // Results; `is_first`: the id is the first of the largest.
  double largest = 0, sum = 0, picked = 0;
  bool is_first = false;
};
// What a row's gradient is made of: nothing (there is none), its own logits, or `lse`.
enum class CrossEntropyMode : int { kForward, kGradient, kGradientOfLse };
using CrossEntropyLoop = void (*)(CrossEntropyRow& row, CrossEntropyMode mode);

struct CrossEntropyLoops {
  CrossEntropyLoop of[kNumTypes] = {};  // float32 and float64
};

// Those for this processor.
const CrossEntropyLoops& cross_entropy_loops();

}  // namespace meshtrain::cpu
