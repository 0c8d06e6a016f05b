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

}  // namespace meshtrain::cpu
