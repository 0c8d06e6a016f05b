// Finds the library that drives GPUs. Nothing of CUDA is in the process before this is called.
#pragma once

#include <string>

#include "backend/gpu/device.h"

namespace meshtrain::gpu {

// The Runtime of $MESHTRAIN_GPU_LIBRARY, else of libmeshtrain_cuda.so beside the program or in
// ../lib; it lives as long as the process. Null where it cannot be had or finds no GPU: then
// `reason` is a sentence that says what is missing and what to do about it.
Runtime* load_runtime(std::string& reason);
// What the libraries below it find in the environment, unless it is set already. Of a process that
// is one of several, before it has threads: they may be reading the environment.
void set_up_environment();
// Whether there is such a library, without opening it; `reason` as above.
bool has_library(std::string& reason);

}  // namespace meshtrain::gpu
