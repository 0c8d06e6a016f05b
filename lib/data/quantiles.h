// Boundaries of bins that hold about as many values each, as Keras' Discretization learns them.
#pragma once

#include <vector>

namespace meshtrain {

// The boundaries between `num_bins` bins of these values, ascending; fewer where there are fewer
// values. `epsilon`: how much of the values may be left out between two that are looked at.
std::vector<double> quantile_boundaries(std::vector<float> values, int num_bins, double epsilon);

}  // namespace meshtrain
