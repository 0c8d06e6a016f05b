// What to change in a config so that a step takes less memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/setup.h"

namespace meshtrain {

// A config that may need less, and what to write for it.
struct Change {
  std::string text;
  Config config;
};

// Levels of `distribution.zero` above that of `setup`, the smallest first.
std::vector<Change> higher_zero_levels(const Setup& setup);

// The first change with whose Setup `fits` holds; null: none. A change that does not go with the
// rest of the config is none.
const Change* first_fitting(const Setup& setup, const std::vector<Change>& changes,
                            const std::function<bool(const Setup&)>& fits);

}  // namespace meshtrain
