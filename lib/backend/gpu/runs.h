// Lists of addresses (of images, of batches) as few arithmetic progressions.
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

// Consecutive places with one step between neighbours; `allowed` says of a step whether it may be
// that of a run.
std::vector<Run> runs_of(const std::vector<Places>& places,
                         const std::function<bool(const Places&)>& allowed);

// Of a list that is a loop in a loop, the runs along whichever of both gives fewer; otherwise as
// runs_of().
std::vector<Run> fewest_runs(const std::vector<Places>& places,
                             const std::function<bool(const Places&)>& allowed);

// Whether no place moves back.
bool is_forward(const Places& step);

// What `bytes` at every place `i` of a run that moves forward cover.
Access access_of(const Run& run, size_t i, int64_t bytes, bool is_write);

// 0 for null.
inline int64_t place_of(const void* address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
}

}  // namespace meshtrain::gpu
