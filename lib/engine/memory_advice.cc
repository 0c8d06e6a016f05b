#include "engine/memory_advice.h"

#include <algorithm>

namespace meshtrain {

std::vector<Change> higher_zero_levels(const Setup& setup) {
  std::vector<Change> out;
  for (int64_t zero = setup.distribution().zero + 1; zero <= 3; ++zero) {
    Change& change =
        out.emplace_back(Change{fmt::format("`distribution.zero: {}`", zero), setup.config()});
    change.config.distribution.zero.value = zero;
  }
  return out;
}

const Change* first_fitting(const Setup& setup, const std::vector<Change>& changes,
                            const std::function<bool(const Setup&)>& fits) {
  const auto found = std::find_if(changes.begin(), changes.end(), [&](const Change& change) {
    try {
      return fits(
          Setup(change.config, &setup.data(), {}, setup.part().processes(), setup.part().rank()));
    } catch (const ConfigError&) {
      return false;
    }
  });
  return found == changes.end() ? nullptr : &*found;
}

}  // namespace meshtrain
