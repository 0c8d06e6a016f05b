// Changes of a config with which a step needs less memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/setup.h"

namespace meshtrain {

// A changed config, and the text that describes the change.
struct Change {
  std::string text;
  Config config;
};

// Returns changes to the levels of `distribution.zero` above that of `setup`, the smallest first.
std::vector<Change> higher_zero_levels(const Setup& setup);

// Returns the first change for which `fits` holds, or null. A change that is invalid with the rest
// of the config is skipped.
const Change* first_fitting(const Setup& setup, const std::vector<Change>& changes,
                            const std::function<bool(const Setup&)>& fits);

}  // namespace meshtrain
