// Reads weight files of every supported kind, by file extension.
#pragma once

#include <string>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

// All tensors of a .safetensors or .npz file; for Keras' HDF5 files see interop/keras/weights.h.
// Throws ConfigError (exit 6): E404 not there, E405 and E406 malformed or refused, E415 a kind that
// is never read because reading it can run code.
std::vector<NamedTensor> read_weights(const std::string& path);

}  // namespace meshtrain
