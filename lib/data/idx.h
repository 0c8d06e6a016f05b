// IDX files, the format of MNIST (yann.lecun.com/exdb/mnist): a magic number with the element type
// and the number of dimensions, the sizes, the elements, all big-endian; plain or gzip.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "data/rows.h"

namespace meshtrain {

// Returns the array of a file as rows that are read for every batch unless they are cached. Throws
// ConfigError (exit 3): E300 no such file, E307 malformed, truncated, or longer than its sizes. For
// a compressed file, errors at its end are thrown when the end is read.
RowsPtr idx_rows(const std::string& path, const SourceLoc& loc);

// Returns the whole array. Allocates no more than the bytes present can hold.
HostTensor read_idx(const std::string& path);

}  // namespace meshtrain
