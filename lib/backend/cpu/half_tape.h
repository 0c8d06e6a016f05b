// Tapes on bfloat16 and float16. The loops compute in float32: a tape widens each 16-bit operand
// once and rounds each 16-bit result once. Intermediate results are float32, as XLA leaves it
// within a fusion (xla_allow_excess_precision).
#pragma once

#include "backend/kernel_spec.h"

namespace meshtrain::cpu {

struct WideTape {
  std::vector<TapeInstruction> instructions;
  std::vector<TapeResult> results;
};

bool has_halves(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape);
// The same computation, in which only casts read or give 16 bits.
WideTape widened_tape(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape,
                      const std::vector<TapeResult>& results);

}  // namespace meshtrain::cpu
