// Epilogue fusion: products that compute the elementwise step after them. Decides which steps fuse,
// and takes commands apart where several are faster.
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

// Returns nothing when the tape computes anything else, or in a type without bias epilogue in
// cuBLASLt (only float32 and 16-bit floats have one).
std::optional<EpilogueTape> epilogue_tape(const std::vector<View>& operands,
                                          const std::vector<TapeInstruction>& tape,
                                          const std::vector<TapeResult>& results);

// Returns whether an operand of a tape of this shape repeats one vector of n elements.
bool repeats_rows(const Shape& shape, const std::vector<int64_t>& strides, int64_t n);

// Returns the commands, with products that have an epilogue, and attentions, as their parts where
// `is_whole` returns false.
std::vector<Command> with_parts(std::vector<Command> commands,
                                const std::function<bool(const Command&)>& is_whole);

}  // namespace meshtrain::gpu
