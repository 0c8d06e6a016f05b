// Rotary positions: angles that every scaling of RotaryEmbedding gives. Halves of a head are the
// pairs, as in Keras Hub. J. Su et al., "RoFormer", 2021; B. Peng et al., "YaRN", 2023.
#pragma once

#include <utility>

#include "nn/model.h"

namespace meshtrain {

// cosine and sine (B or 1, steps, size / 2) of the angles at `positions` (B, steps), int32, or, for
// kNone, at start, start + 1, ... `layer`: a RotaryEmbedding. Computed in float64.
std::pair<ValueId, ValueId> rotary_angles(Builder& builder, const ConfigObject& layer,
                                          ValueId positions, int64_t start, int64_t steps,
                                          int64_t size, DType dtype);
// Reports arguments of a RotaryEmbedding that do not fit each other, or heads of odd size (E113,
// E120).
bool check_rotary(const ConfigObject& layer, std::string_view name, int64_t size,
                  Diagnostics& diagnostics);

}  // namespace meshtrain
