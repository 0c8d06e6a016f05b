#include "backend/cuda/matmul_layout.h"

namespace meshtrain::cuda {
namespace {

// A matrix of rows x columns whose element (r, c) is at r * row_step + c * column_step.
std::optional<ColumnMatrix> column_matrix(int64_t rows, int64_t columns, int64_t row_step,
                                          int64_t column_step) {
  const int64_t between_columns = columns == 1 ? rows : column_step;
  if ((rows == 1 || row_step == 1) && between_columns >= rows)
    return ColumnMatrix{false, rows, columns, between_columns};
  const int64_t between_rows = rows == 1 ? columns : row_step;
  if ((columns == 1 || column_step == 1) && between_rows >= columns)
    return ColumnMatrix{true, columns, rows, between_rows};
  return std::nullopt;
}

}  // namespace

std::optional<MatmulLayout> matmul_layout(const MatmulSpec& spec) {
  const auto first = column_matrix(spec.n, spec.k, spec.b_column, spec.b_row);
  const auto second = column_matrix(spec.k, spec.m, spec.a_column, spec.a_row);
  const auto result = column_matrix(spec.n, spec.m, 1, spec.c_row);
  if (!first || !second || !result || result->is_transposed)
    return std::nullopt;
  return MatmulLayout{*first, *second, *result};
}

uint32_t alignment_of(const std::byte* data, int64_t step) {
  const uint64_t bits = reinterpret_cast<uint64_t>(data) | static_cast<uint64_t>(step) | 16;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

MatmulAlignments alignments_of(const gpu::Matmul& matmul, const MatmulLayout& layout,
                               bool anywhere) {
  const auto item = static_cast<int64_t>(dtype_size(matmul.spec.dtype));
  const auto of = [&](const std::byte* data, const ColumnMatrix& matrix, int64_t step) {
    return alignment_of(data, (step | (anywhere ? matrix.leading * matrix.columns : 0)) * item);
  };
  const std::byte* const bias = matmul.epilogue ? matmul.epilogue->bias : nullptr;
  return {of(matmul.spec.a, layout.second, matmul.a_step),
          of(matmul.spec.b, layout.first, matmul.b_step),
          of(matmul.result(), layout.result, matmul.c_step),
          alignment_of(bias, anywhere ? matmul.spec.n * item : 0)};
}

}  // namespace meshtrain::cuda
