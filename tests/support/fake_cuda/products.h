// Products that the fake cuBLASLt is asked for.
#pragma once

#include <cublasLt.h>

#include <optional>

#include "backend/gpu/command.h"
#include "support/fake_cuda/state.h"

namespace meshtrain::fake_cuda {

struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposes_a = CUBLAS_OP_N, transposes_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t step = 0;
};
// D (n, m) by columns = op(A) (n, k) op(B) (k, m) is C (m, n) = B A by rows.
struct Problem {
  gpu::Matmul matmul;  // without addresses
  bool use_tf32;
  uint64_t hash;
};

// Refused unless layouts and types fit each other.
Problem problem_of(const Product& product, const Layout& a, const Layout& b, const Layout& d);
std::optional<gpu::Epilogue> epilogue_of(const Product& product, std::byte* to);
size_t result_bytes(const gpu::Matmul& matmul);
// Operands, the result and a bias lie in the device's memory, and the result over no operand.
void check_memory(const Device& device, const gpu::Matmul& matmul);
// Behind the stream's work; with a workspace as two kernels, of which the second finds out whether
// another call used that in between.
void enqueue_product(Stream& stream, const gpu::Matmul& matmul, bool use_tf32, std::byte* workspace,
                     size_t workspace_bytes);

}  // namespace meshtrain::fake_cuda
