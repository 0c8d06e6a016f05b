// CUDA C++ to machine code.
#pragma once

#include <span>
#include <string>

#include "backend/cuda/core.h"

namespace meshtrain::cuda {

// What code is made for: the GPU itself, or text that its driver translates.
struct Architecture {
  std::string option;  // "sm_90", "compute_90"
  bool is_ptx = false;
};

// The best of the `supported` compute capabilities (75, 80, ...) for a GPU of `compute`: its own;
// else the nearest older one of its generation, whose code it runs; else PTX of the newest older
// one. "" where all are newer.
Architecture choose_architecture(int compute, std::span<const int> supported);

// What NVRTC can make code for, ascending, and its version, "13.0".
std::vector<int> supported_architectures(const Core& core);
std::string compiler_version(const Core& core);
// All options of a compilation, as one text: what results depend on beside the text itself.
std::string compile_options(const Core& core, const Architecture& architecture);

// A cubin, or PTX. Throws RuntimeFailure with the compiler's messages.
std::string compile(const Core& core, const std::string& text, const Architecture& architecture);

}  // namespace meshtrain::cuda
