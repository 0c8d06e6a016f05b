// What is in an array, for people: `meshtrain data inspect`. Read once, block by block.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "data/rows.h"

namespace meshtrain {

struct ArrayStats {
  // Of the finite numbers; NaN when there are none.
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
  int64_t nans = 0;
  int64_t infinities = 0;
  // Of labels: samples of each class. Labels are whole numbers, one of a sample and of at most 1000
  // kinds; floats of which each is 0 or 1 (binary); or rows with one 1 among 0 (one-hot).
  std::optional<std::map<int64_t, int64_t>> classes;
};

ArrayStats measure(const Rows& rows, bool are_labels);

}  // namespace meshtrain
