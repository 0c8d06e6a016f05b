// Whether a product computes its epilogue itself, or a launch does that behind it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "backend/cuda/cache.h"
#include "backend/gpu/command.h"

namespace meshtrain::cuda {

// Multiplications and additions from which on a product takes tens of microseconds: what is chosen
// for it is measured.
constexpr double kLongOperations = 2e9;
double operations_of(const gpu::Matmul& matmul);

// False where $MESHTRAIN_EPILOGUES is 0: then every product is computed alone, which tells a wrong
// epilogue of the library from other mistakes.
bool uses_epilogues();

struct EpilogueTimes {
  float fused = 0, apart = 0;  // of one unit
};

// Whether cuBLASLt's epilogue is the one that is asked for. Its relu is reported to make 0 of a NaN
// (forums.developer.nvidia.com, topic 329783), which would hide that weights are lost; ours hands
// it on, and stays a launch. Its gelu has the tanh of the hardware (tanh.approx, 2^-11 off): as
// exact as products in TF32 and bfloat16, not as those in float32. A bias that is aligned to less
// than 16 bytes has been read by kernels that take it for more (pytorch/pytorch, pull request
// 194497).
bool is_ours(const gpu::Matmul& matmul, const gpu::DeviceOptions& options);

// The choice where nothing is measured, the same for every run and process on a kind of GPU
// (`compute`: 90 for compute capability 9.0). A short product is fused: a launch costs it as much
// again. So is a long one with a bias, which kernels add on their way out. A long one with a gelu,
// or an activation alone, is fused from 9.0 on only: for older GPUs cuBLASLt appends slow kernels
// (karpathy/llm.c, pull request 338, which draws the same line).
bool fuses_unmeasured(const gpu::Matmul& matmul, int compute);

// What the cache has under `key`, else what `measure` finds to be faster, which is then kept there.
// Where it finds nothing (no memory or time to spare), `unmeasured`, kept all the same: runs that
// share a cache round alike. Where nothing can be kept, `unmeasured`, too.
bool measured_choice(bool unmeasured, const Cache& cache, const std::string& key,
                     const std::function<std::optional<EpilogueTimes>()>& measure);

}  // namespace meshtrain::cuda
