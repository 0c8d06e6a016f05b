// Elementwise ops, one or a chain of them, evaluated block by block so that everything between the
// operands and the results fits into the first-level cache.
#pragma once

#include <string_view>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// Operands have strides over the tape's shape (0 where they broadcast). A result may be exactly one
// of the operands in memory, where that operand has the result's shape and size of elements.
// 16-bit types: half_tape.h.
KernelPtr make_tape(const Shape& shape, const std::vector<View>& operands,
                    const std::vector<TapeInstruction>& tape,
                    const std::vector<TapeResult>& results);

// The same with instructions on rows of `columns` elements (tape_plan.h); 0: no rows.
struct TapeOverRows {
  Shape shape = {};
  std::vector<View> operands = {};
  std::vector<TapeInstruction> tape = {};
  std::vector<TapeResult> results = {};
  int64_t columns = 0;
  // Operands, then instructions, with one number a row, which are adjacent; or empty. No 16 bits.
  std::vector<bool> of_rows = {};
};
KernelPtr make_tape(TapeOverRows tape);

}  // namespace meshtrain::cpu
