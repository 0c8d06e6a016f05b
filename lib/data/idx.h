// IDX files, the format of MNIST (yann.lecun.com/exdb/mnist): a magic number with the element type
// and the number of dimensions, the sizes, the elements, all big-endian; plain or gzip.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "data/rows.h"

namespace meshtrain {

// The array of a file, which stays there: read anew for every batch unless somebody keeps it.
// Throws ConfigError (exit 3): E300 not there, E307 malformed, truncated, or with more bytes than
// its sizes say; what only the end of a compressed file tells is thrown when that is read.
RowsPtr idx_rows(const std::string& path, const SourceLoc& loc);

// The whole of it. Memory is taken only for what the bytes present can hold.
HostTensor read_idx(const std::string& path);

}  // namespace meshtrain
