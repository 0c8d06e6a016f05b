// Products in the words of cuBLASLt, which thinks in columns: C (m, n) by rows is its transpose
// (n, m) by columns, so it is asked for transposed(C) = transposed(B) transposed(A).
#pragma once

#include <cstdint>
#include <optional>

#include "backend/gpu/command.h"

namespace meshtrain::cuda {

// A matrix by columns: element (r, c) at r + c * leading.
struct ColumnMatrix {
  bool is_transposed = false;  // it is the transpose of what enters the product
  int64_t rows = 1, columns = 1, leading = 1;
};

struct MatmulLayout {
  ColumnMatrix first, second;  // from B, from A
  ColumnMatrix result;         // never transposed
};

// Nothing where neither the rows nor the columns of an operand are adjacent, or where they overlap.
std::optional<MatmulLayout> matmul_layout(const MatmulSpec& spec);

// The largest power of two, up to 16, of which both the address and all the batches' are multiples
// (`step` bytes apart). No more than kernels look at.
uint32_t alignment_of(const std::byte* data, int64_t step);

// Those of what a product reads and writes. `anywhere`: as if each stood behind others of its size.
// A chunk is in one block of memory behind others or, in another process, alone, and must have the
// same algorithm in both where nothing is measured.
struct MatmulAlignments {
  uint32_t a, b, c, bias;
};
MatmulAlignments alignments_of(const gpu::Matmul& matmul, const MatmulLayout& layout,
                               bool anywhere);

}  // namespace meshtrain::cuda
