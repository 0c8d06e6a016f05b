// Memory of a GPU program outside of its arena: slots for inputs from the host and for results, and
// small buffers.
#pragma once

#include <vector>

#include "exec/executor_impl.h"

namespace meshtrain {

// Each step has one slot of each kind. Large slots hold inputs that the host writes, small slots
// hold scalars and row numbers of tables, result slots hold small outputs.
struct GpuSlots {
  struct Place {
    int64_t rows = 0;   // gathered from a table; for a scalar: numbers it may take
    int64_t small = 0;  // of row numbers, or of an input that is not larger
    int64_t large = kNone;
  };
  std::vector<Place> inputs;
  std::vector<int64_t> outputs;                                // empty: outputs are in the arena
  int64_t small_bytes = 0, large_bytes = 0, result_bytes = 0;  // of one step
  int max_steps = 1;  // of a run, as memory allows; 1 when outputs are in the arena

  // Double buffering: one half is filled while the other computes. Each has max_steps slots.
  static constexpr int kHalves = 2;
  int64_t total_bytes() const {
    return kHalves * max_steps * (small_bytes + large_bytes + result_bytes);
  }
};
GpuSlots plan_slots(const Program& program);

// Returns places for small buffers, except constants. In the arena these buffers would reuse each
// other's memory, and independent steps would wait for each other.
BufferPlaces small_buffer_places(const Program& program);

}  // namespace meshtrain
