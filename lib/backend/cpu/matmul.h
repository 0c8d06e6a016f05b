// Batched matrix products. float32 goes to oneDNN's sgemm (measured equal to its matmul primitives
// at our shapes, without creation cost and without allocating through operator new), float64 and
// what sgemm cannot address go to the loops of simd/gemm.cc.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// c[i, j] = sum over p of a[i, p] * b[p, j] for every batch; element (i, p) of A is at
// a + offset + i * a_row + p * a_column, all in elements; columns of C are adjacent.
struct MatmulSpec {
  DType dtype = DType::kFloat32;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  int64_t m = 1, n = 1, k = 1;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
  struct Batch {
    int64_t a = 0, b = 0, c = 0;
  };
  std::vector<Batch> batches;
};

KernelPtr make_matmul(MatmulSpec spec);

}  // namespace meshtrain::cpu
