// Matrix product for float64, and for float32 shapes too small to be worth a library call.
//
// The sum over k runs in blocks of kBlockK whatever m and n are, so a row of C does not depend on
// how many rows a call computes.
#include "backend/cpu/simd/tile.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kBlockM = 96;  // a multiple of every kTileRows
constexpr int64_t kBlockN = 512;
constexpr int64_t kBlockK = 256;

template <class T>
void gemm(const GemmArgs& args, void* scratch) {
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  T* c = static_cast<T*>(args.c);
  T* packed_a = static_cast<T*>(scratch);
  T* packed_b = packed_a + (kBlockM + kTileRows) * kBlockK;
  for (int64_t p = 0; p < args.k; p += kBlockK) {
    const int64_t k = args.k - p < kBlockK ? args.k - p : kBlockK;
    for (int64_t j = 0; j < args.n; j += kBlockN) {
      const int64_t n = args.n - j < kBlockN ? args.n - j : kBlockN;
      pack_b(b + p * args.b_row + j * args.b_column, args.b_row, args.b_column, k, n, packed_b);
      for (int64_t i = 0; i < args.m; i += kBlockM) {
        const int64_t m = args.m - i < kBlockM ? args.m - i : kBlockM;
        pack_a(a + i * args.a_row + p * args.a_column, args.a_row, args.a_column, m, k, packed_a);
        multiply_block<T>(packed_a, packed_b, c + i * args.c_row + j, args.c_row, m, n, k, p > 0);
      }
    }
  }
  if (args.k > 0)
    return;
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j)
      c[i * args.c_row + j] = T{0};
  }
}

}  // namespace

void MESHTRAIN_FILL(fill_gemm)(KernelTable& table) {
  table.gemm[kTypeF32] = gemm<float>;
  table.gemm[kTypeF64] = gemm<double>;
  table.gemm_scratch_bytes =
      sizeof(double) * ((kBlockM + kTileRows) * kBlockK + (kBlockN + 64) * kBlockK);
}

}  // namespace meshtrain::cpu
