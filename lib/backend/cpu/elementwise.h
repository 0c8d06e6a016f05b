// Elementwise ops, one or a chain of them, evaluated block by block so that everything between the
// operands and the results stays in the first-level cache.
#pragma once

#include <string_view>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// One instruction of a tape. Arguments: i < number of operands: operand i; otherwise the result of
// instruction i - number of operands.
struct TapeInstruction {
  std::string_view op;  // name of an elementwise op, "cast", "constant", or "copy"
  std::vector<int> args;
  DType dtype = DType::kFloat32;  // of the result
  double low = 0, high = 0;       // of clamp; low is the value of a constant
};

struct TapeResult {
  int instruction = 0;
  View view;  // contiguous, of the tape's shape
};

// Operands have strides over the tape's shape (0 where they broadcast). A result may be exactly one
// of the operands in memory, where that operand has the result's shape and size of elements.
KernelPtr make_tape(const Shape& shape, const std::vector<View>& operands,
                    const std::vector<TapeInstruction>& tape,
                    const std::vector<TapeResult>& results);

// Whether a tape can hold this op.
bool is_tape_op(std::string_view op);

}  // namespace meshtrain::cpu
