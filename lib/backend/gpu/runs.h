// Represents lists of addresses (of images, of batches) as few arithmetic progressions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "backend/view.h"

namespace meshtrain::gpu {

// Up to three places that move together: those of one image in x, kernel and y.
using Places = std::array<int64_t, 3>;

struct Run {
  Places first{}, step{};
  int64_t count = 1;
};

// Returns runs of consecutive places with a constant step; `allowed` accepts or rejects a step.
std::vector<Run> runs_of(const std::vector<Places>& places,
                         const std::function<bool(const Places&)>& allowed);

// For a list that is a nested loop, returns the runs along the loop that gives fewer; otherwise as
// runs_of().
std::vector<Run> fewest_runs(const std::vector<Places>& places,
                             const std::function<bool(const Places&)>& allowed);

// Returns whether no place moves backwards.
bool is_forward(const Places& step);

// Returns the memory that `bytes` at every place `i` of a forward run cover.
Access access_of(const Run& run, size_t i, int64_t bytes, bool is_write);

// 0 for null.
inline int64_t place_of(const void* address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
}
inline const std::byte* address_at(int64_t place) {
  return reinterpret_cast<const std::byte*>(place);
}

}  // namespace meshtrain::gpu
