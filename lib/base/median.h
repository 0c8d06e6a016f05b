// The median of numbers.
#pragma once

#include <algorithm>
#include <vector>

namespace meshtrain {

// Of an even number of values the mean of the two in the middle; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const double upper = *middle;
  return values.size() % 2 == 1 ? upper : (upper + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace meshtrain
