// Batched matrix products. float32 goes to oneDNN's sgemm (measured equal to its matmul primitives
// at our shapes, without creation cost and without allocating through operator new), float64 and
// what sgemm cannot address go to the loops of simd/gemm.cc.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

KernelPtr make_matmul(MatmulSpec spec);

}  // namespace meshtrain::cpu
