// IDX files, the format of MNIST (yann.lecun.com/exdb/mnist): a magic number with the element type
// and the number of dimensions, the sizes, the elements, all big-endian; plain or gzip.
#pragma once

#include <string>

#include "tensor/host_tensor.h"

namespace meshtrain {

// Throws ConfigError (exit 3): E300 not there, E307 malformed, truncated, or with more bytes than
// its sizes say. Memory is taken only for what the bytes present can hold.
HostTensor read_idx(const std::string& path);

}  // namespace meshtrain
