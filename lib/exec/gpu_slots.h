// Where a program on a GPU has what lies outside of its arena: slots of the host's inputs and of
// results, and buffers that are small.
#pragma once

#include <vector>

#include "exec/executor_impl.h"

namespace meshtrain {

// A step has a slot of each kind. Inputs that the host writes lie in large ones, scalars and rows
// of tables in small ones; outputs, where they are small, in slots of results.
struct GpuSlots {
  struct Place {
    int64_t rows = 0;   // of a table that it is gathered from; of a scalar: numbers it may take
    int64_t small = 0;  // rows of a table, or an input that is not larger than these
    int64_t large = kNone;
  };
  std::vector<Place> inputs;
  std::vector<int64_t> outputs;                                // empty: they stay in the arena
  int64_t small_bytes = 0, large_bytes = 0, result_bytes = 0;  // of one step
  int max_steps = 1;  // of a run: as many as there is room for; 1 where outputs stay in the arena

  // Halves that are filled and computed by turns, of max_steps slots each.
  static constexpr int kHalves = 2;
  int64_t total_bytes() const {
    return kHalves * max_steps * (small_bytes + large_bytes + result_bytes);
  }
};
GpuSlots plan_slots(const Program& program);

// Constants excepted. In the arena they would take turns in the same memory, and steps that have
// nothing to do with each other would wait for each other.
BufferPlaces small_buffer_places(const Program& program);

}  // namespace meshtrain
