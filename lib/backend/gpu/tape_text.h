// Instructions of tapes as C++ expressions.
#pragma once

#include <functional>
#include <string>

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// An argument of an instruction: what it is called, and of which type it is.
struct TapeArgument {
  std::string name;
  DType dtype = DType::kFloat32;
};

// Of the type that the result's dtype is computed in, not rounded to 16 bits. Throws InternalError
// where the op is not defined for its operands.
std::string instruction_text(const TapeInstruction& instruction,
                             const std::function<TapeArgument(int)>& argument);

bool is_16_bit(DType dtype);

}  // namespace meshtrain::gpu
