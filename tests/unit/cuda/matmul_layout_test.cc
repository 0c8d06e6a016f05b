#include "backend/cuda/matmul_layout.h"

#include <doctest/doctest.h>

#include <vector>

#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

// Element (r, c) of a matrix by columns, or of its transpose where that enters the product.
int64_t at(const cuda::ColumnMatrix& matrix, int64_t r, int64_t c) {
  return matrix.is_transposed ? c + r * matrix.leading : r + c * matrix.leading;
}

// What cuBLASLt computes for this layout, and what the spec asks for.
void compare(const MatmulSpec& s) {
  const std::optional<cuda::MatmulLayout> layout = cuda::matmul_layout(s);
  REQUIRE(layout);
  for (const cuda::ColumnMatrix* matrix : {&layout->first, &layout->second, &layout->result})
    CHECK(matrix->leading >= matrix->rows);
  const auto length = [](int64_t rows, int64_t columns, int64_t row, int64_t column) {
    return static_cast<size_t>((rows - 1) * row + (columns - 1) * column + 1);
  };
  std::vector<int64_t> a(length(s.m, s.k, s.a_row, s.a_column));
  std::vector<int64_t> b(length(s.k, s.n, s.b_row, s.b_column));
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<int64_t>(i * 7 % 23) - 11;
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = static_cast<int64_t>(i * 5 % 19) - 9;
  const size_t size = length(s.m, s.n, s.c_row, 1);
  std::vector<int64_t> want(size, 1000), got(size, 1000);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      int64_t sum = 0, other = 0;
      for (int64_t p = 0; p < s.k; ++p) {
        sum += a.at(static_cast<size_t>(i * s.a_row + p * s.a_column)) *
               b.at(static_cast<size_t>(p * s.b_row + j * s.b_column));
        other += b.at(static_cast<size_t>(at(layout->first, j, p))) *
                 a.at(static_cast<size_t>(at(layout->second, p, i)));
      }
      want.at(static_cast<size_t>(i * s.c_row + j)) = sum;
      got.at(static_cast<size_t>(at(layout->result, j, i))) = other;
    }
  }
  CHECK(got == want);
}

TEST_CASE("products by columns equal products by rows for every order of the operands") {
  uint64_t drawn = 0;
  const auto below = [&](uint64_t limit) { return splitmix_below(1, drawn++, limit); };
  for (int round = 0; round < 500; ++round) {
    MatmulSpec s;
    s.m = 1 + below(4);
    s.n = 1 + below(4);
    s.k = 1 + below(4);
    const auto lines = [&](int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
      const bool by_rows = below(2) == 0;
      row = by_rows ? columns + below(3) : 1;
      column = by_rows ? 1 : rows + below(3);
    };
    lines(s.m, s.k, s.a_row, s.a_column);
    lines(s.k, s.n, s.b_row, s.b_column);
    s.c_row = s.n + below(3);
    compare(s);
  }
}

TEST_CASE("strides of dimensions of size 1 do not matter") {
  MatmulSpec s;
  s.m = 1;
  s.n = 5;
  s.k = 3;
  s.a_row = 0;
  s.a_column = 1;
  s.b_row = 5;
  s.b_column = 1;
  s.c_row = 0;
  compare(s);
  s.a_row = 1;  // a row whose elements are apart is a column of a matrix
  s.a_column = 4;
  compare(s);
  s.k = 1;
  s.b_row = 0;
  compare(s);
}

TEST_CASE("operands without adjacent rows or columns are refused") {
  MatmulSpec s;
  s.m = s.n = s.k = 4;
  s.a_row = 8;
  s.a_column = 2;
  s.b_row = 4;
  s.b_column = 1;
  s.c_row = 4;
  CHECK(!cuda::matmul_layout(s));
  s.a_column = 1;
  CHECK(cuda::matmul_layout(s));
  s.a_row = 0;  // rows repeat
  CHECK(!cuda::matmul_layout(s));
  s.a_row = 4;
  s.c_row = 3;
  CHECK(!cuda::matmul_layout(s));
}

TEST_CASE("alignment is that of the address and of the step between batches") {
  const auto of = [](uintptr_t address, int64_t step) {
    return cuda::alignment_of(reinterpret_cast<const std::byte*>(address), step);
  };
  CHECK(of(4096, 0) == 16);
  CHECK(of(4096, 64) == 16);
  CHECK(of(4096 + 8, 64) == 8);
  CHECK(of(4096 + 6, 64) == 2);
  CHECK(of(4096, 12) == 4);
}

TEST_CASE("a product that may stand anywhere is aligned as its size says") {
  const auto at = [](uintptr_t address) { return reinterpret_cast<std::byte*>(address); };
  gpu::Matmul matmul;
  MatmulSpec& spec = matmul.spec;  // a is (3, 6), b (6, 5), c (3, 5)
  spec.m = 3;
  spec.n = 5;
  spec.k = 6;
  spec.a_row = 6;
  spec.a_column = 1;
  spec.b_row = 5;
  spec.b_column = 1;
  spec.c_row = 5;
  spec.a = at(4096);
  spec.b = at(8192);
  spec.c = at(4096 * 3);
  const auto alignments = [&](bool anywhere) {
    const auto all = cuda::alignments_of(matmul, *cuda::matmul_layout(matmul.spec), anywhere);
    return std::vector<uint32_t>{all.a, all.b, all.c};
  };
  CHECK(alignments(false) == std::vector<uint32_t>{16, 16, 16});
  CHECK(alignments(true) == std::vector<uint32_t>{8, 8, 4});  // 72, 120 and 60 bytes
  spec.a = at(4096 + 72);                                     // behind another one
  spec.b = at(8192 + 120);
  spec.c = at(4096 * 3 + 60);
  CHECK(alignments(false) == std::vector<uint32_t>{8, 8, 4});
  CHECK(alignments(true) == std::vector<uint32_t>{8, 8, 4});
}

}  // namespace
}  // namespace meshtrain::test
