// What models compute behind a product.
#pragma once

#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::test {

// activation(operand 0 + operand 1), or of operand 0 alone; the last instruction is the result.
inline std::vector<TapeInstruction> epilogue_tape(DType f, gpu::Activation activation,
                                                  bool adds_bias) {
  std::vector<TapeInstruction> tape;
  if (adds_bias)
    tape.push_back({"add", {0, 1}, f});
  const int x = adds_bias ? 2 : 0;
  if (activation == gpu::Activation::kRelu)
    tape.push_back({"relu", {x}, f});
  if (activation == gpu::Activation::kGelu)
    tape.push_back({"gelu_tanh", {x}, f});
  return tape;
}

}  // namespace meshtrain::test
