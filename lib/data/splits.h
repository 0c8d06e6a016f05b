// Parts of the samples: `slice` of every source, and split strings as TensorFlow Datasets has them
// where a source has splits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace meshtrain {

// Begin and end of Python's slice "[begin:end]" over `size` samples, clamped as Python does; an end
// may be negative or a percentage ("[:90%]"), rounded towards the beginning. Throws ConfigError
// E113 for anything else.
std::pair<int64_t, int64_t> parse_slice(const std::string& text, int64_t size,
                                        const SourceLoc& loc);

// Rows [begin, end) of every array.
Dataset slice_dataset(const Dataset& dataset, int64_t begin, int64_t end);
// The same where nobody needs the others: of arrays in memory copies, one after the other, so that
// they are not all there twice.
Dataset cut_dataset(Dataset dataset, int64_t begin, int64_t end);
// The samples of all parts, one after the other; the parts have the same arrays.
Dataset join_datasets(std::vector<Dataset> parts);

}  // namespace meshtrain
