// Positions of steps that come in head-tail order.
#pragma once

#include "nn/model.h"

namespace meshtrain {

// Positions (steps,) int32 of the steps of a sample, from `start` on, or kNone where they are in
// order: where CallContext::head_tail is 1. The node belongs to the scope kStepPositions.
ValueId step_positions(const CallContext& context, int64_t steps, int64_t start = 0);
// The same from 0 on as (1, steps), of keys: a value of its own, so that it stays whole where that
// of queries is split.
ValueId key_positions(const CallContext& context, int64_t steps);
inline constexpr const char* kStepPositions = "head_tail_positions";

}  // namespace meshtrain
