// Instructions of tapes as C++ expressions.
#pragma once

#include <functional>
#include <string>

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// An argument of an instruction: its name and its type.
struct TapeArgument {
  std::string name;
  DType dtype = DType::kFloat32;
};

// Returns the expression in the compute type of the result's dtype, not rounded to 16 bits. Throws
// InternalError when the op is not defined for its operands.
std::string instruction_text(const TapeInstruction& instruction,
                             const std::function<TapeArgument(int)>& argument);

bool is_16_bit(DType dtype);

}  // namespace meshtrain::gpu
