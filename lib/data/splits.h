// Subsets of the samples: `slice` of every source, and split strings as in TensorFlow Datasets for
// sources with splits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace meshtrain {

// Returns begin and end of Python's slice "[begin:end]" over `size` samples, clamped as Python
// does; an end may be negative or a percentage ("[:90%]"), rounded towards the beginning. Throws
// ConfigError E113 for anything else.
std::pair<int64_t, int64_t> parse_slice(const std::string& text, int64_t size,
                                        const SourceLoc& loc);

// Returns samples [begin, end) of those that the ranges hold one after the other.
std::vector<SourceRange> cut_ranges(const std::vector<SourceRange>& ranges, int64_t begin,
                                    int64_t end);

// Returns rows [begin, end) of every array.
Dataset slice_dataset(const Dataset& dataset, int64_t begin, int64_t end);
// The same, and frees the other rows. Copies arrays in memory one after the other, so that at most
// one array is duplicated at a time.
Dataset cut_dataset(Dataset dataset, int64_t begin, int64_t end);
// Concatenates the samples of datasets with the same arrays.
Dataset join_datasets(std::vector<Dataset> parts);

}  // namespace meshtrain
