// What models compute behind a product.
#pragma once

#include <cmath>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::test {

// activation(operand 0 + operand 1), or of operand 0 alone; the last instruction is the result.
inline std::vector<TapeInstruction> epilogue_tape(DType f, gpu::Activation activation,
                                                  bool adds_bias) {
  std::vector<TapeInstruction> tape;
  const int first = adds_bias ? 2 : 1;  // the number of the first instruction's result
  if (adds_bias)
    tape.push_back({"add", {0, 1}, f});
  const int x = adds_bias ? first : 0;
  const auto put = [&](std::string_view op, std::vector<int> args, double value = 0) {
    tape.push_back({op, std::move(args), f, value});
    return first + static_cast<int>(tape.size()) - 1;
  };
  if (activation == gpu::Activation::kRelu)
    put("relu", {x});
  if (activation == gpu::Activation::kGelu) {
    const int half = put("mul", {x, put("constant", {}, 0.5)});
    const int cube = put("mul", {put("square", {x}), x});
    const int sum = put("add", {x, put("mul", {cube, put("constant", {}, 0.044715)})});
    const int inner = put("mul", {sum, put("constant", {}, std::sqrt(2 / M_PI))});
    put("mul", {half, put("add", {put("tanh", {inner}), put("constant", {}, 1)})});
  }
  return tape;
}

}  // namespace meshtrain::test
