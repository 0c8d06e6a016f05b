// Loads the library that drives GPUs. No CUDA library is loaded before.
#pragma once

#include <string>

#include "backend/gpu/device.h"

namespace meshtrain::gpu {

// Returns the Runtime of $MESHTRAIN_GPU_LIBRARY, else of libmeshtrain_cuda.so beside the program or
// in ../lib; it lives as long as the process. Returns null when loading fails or there is no GPU:
// then `reason` is a sentence with the cause and the remedy.
Runtime* load_runtime(std::string& reason);
// Sets environment variables for the libraries below it, unless they are set already. Call in a
// process of several, before it has threads, since threads may read the environment.
void set_up_environment();
// Returns whether the library exists, without loading it; `reason` as above.
bool has_library(std::string& reason);

}  // namespace meshtrain::gpu
