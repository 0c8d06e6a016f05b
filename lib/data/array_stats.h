// Statistics of an array for `meshtrain data inspect`, computed in one pass, block by block.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "data/rows.h"

namespace meshtrain {

struct ArrayStats {
  // Statistics of the finite numbers; NaN when there are none.
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
  int64_t nans = 0;
  int64_t infinities = 0;
  // For labels: samples of each class. Labels are whole numbers, one for each sample, of at most
  // 1000 kinds; floats that are all 0 or 1 (binary); or one-hot rows.
  std::optional<std::map<int64_t, int64_t>> classes;
};

ArrayStats measure(const Rows& rows, bool are_labels);

}  // namespace meshtrain
