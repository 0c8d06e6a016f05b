// Products that compute the elementwise step behind them: which steps these are, and how such a
// product is taken apart where it is faster in two commands.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// A tape that is activation(product + bias), of operands of one type.
struct EpilogueTape {
  size_t product = 0;          // the operand, contiguous as the result
  std::optional<size_t> bias;  // the operand that is added
  Activation activation = Activation::kNone;
};

// Nothing where the tape computes anything else, or in a type of which cuBLASLt adds no bias of the
// same type (float32 and 16-bit floats).
std::optional<EpilogueTape> epilogue_tape(const std::vector<View>& operands,
                                          const std::vector<TapeInstruction>& tape,
                                          const std::vector<TapeResult>& results);

// Whether an operand of a tape of this shape is one vector of n elements for every n elements.
bool repeats_rows(const Shape& shape, const std::vector<int64_t>& strides, int64_t n);

// The commands, with those products as two of which `is_fused` says no.
std::vector<Command> with_products_apart(std::vector<Command> commands,
                                         const std::function<bool(const Command&)>& is_fused);

}  // namespace meshtrain::gpu
