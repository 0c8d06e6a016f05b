// The inner loops of the CPU backend. The sources in simd/ are compiled once for each level of the
// x86-64 instruction set (v2: SSE4.2, v3: AVX2, v4: AVX-512). The level is chosen when the process
// starts.
//
// Everything here works on raw memory: the callers decide shapes, broadcasting and shards.
// Loops tolerate an output that is exactly one of their same-shape operands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/rules.h"

namespace meshtrain::cpu {

// Element types in the order of the tables below.
enum TypeIndex : int {
  kTypeBool,
  kTypeU8,
  kTypeI32,
  kTypeU32,
  kTypeI64,
  kTypeF32,
  kTypeF64,
  kTypeBF16,  // 16 bits are only read and written: see half.h
  kTypeF16,
  kNumTypes
};

enum class ElementOp : int {
#define MESHTRAIN_CPU_OP(name) k_##name,
  MESHTRAIN_ELEMENT_OPS(MESHTRAIN_CPU_OP)
#undef MESHTRAIN_CPU_OP
      kCount
};

// out[i] = op(a[i], b[i], c[i]) for i < n. Unary ops read a, binary ops a and b; select reads
// (bool a) ? b : c; clamp keeps a inside [low, high].
struct ElementParams {
  double low = 0, high = 0;
};
using ElementLoop = void (*)(void* out, const void* a, const void* b, const void* c, int64_t n,
                             const ElementParams& params);

// out[r] = sum (max, min) over c of x[r * row_stride + c], r < rows. Of 16-bit elements `out` is
// float32.
using ReduceRows = void (*)(void* out, const void* x, int64_t rows, int64_t columns,
                            int64_t row_stride);
// out[c] = sum (max, min) over r of x[r * row_stride + c], c < columns.
using ReduceColumns = void (*)(void* out, const void* x, int64_t rows, int64_t columns,
                               int64_t row_stride);
// out[i] = sources[0][i] + sources[1][i] + ... in this order (or max, min); 16-bit elements are
// added up in float32 and rounded once.
using CombineMany = void (*)(void* out, const void* const* sources, int64_t num_sources, int64_t n);

// Fields of the Philox counter that every element of a call shares.
struct RandomStream {
  uint64_t key = 0;
  uint32_t stream = 0;
  uint32_t step = 0;
};

// C (m, n) = A (m, k) B (k, n) (+ C), element (i, j) of A at a[i * a_row + j * a_column] and so on;
// columns of C are adjacent. `scratch` holds gemm_scratch_bytes.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
};
using GemmLoop = void (*)(const GemmArgs& args, void* scratch);

// A block of sums of products, `rows` x `columns`, over runs of terms:
//   c[r * c_row + j] = sum over i < num_runs, k < length of
//       a[a_offsets[i] + r * a_row + k * a_step (+ j: kLanes)] * b[b_offsets[i] + k * b_row + j]
// (+ c where `accumulate`). At most panel_columns columns; whole vectors of b are read: columns up
// to the next multiple of panel_lanes, and so of a where it is kLanes. The terms of a sum are added
// in an order that depends on rows, columns and runs only.
enum class PanelKind : int {
  kSteps,     // a_step is 1: pixels against a packed kernel
  kAdjacent,  // a_row is 1: gradients of kernels
  kLanes,     // channel by channel: depthwise convolutions
  kCount
};
struct PanelArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const int64_t* a_offsets = nullptr;
  const int64_t* b_offsets = nullptr;
  int64_t num_runs = 0, length = 0;
  int64_t a_row = 0, a_step = 0, b_row = 0, c_row = 0;
  int64_t rows = 0, columns = 0;
  bool accumulate = false;
};
using PanelLoop = void (*)(const PanelArgs& args);

// One window of a pool: `cells` places of `channels` numbers each, at x + offsets[i].
struct PoolArgs {
  const void* x = nullptr;
  const int64_t* offsets = nullptr;
  int64_t cells = 0, channels = 0;
};

// Attention of one batch item and one key head (ir/ops/attention.cc has the formulas). Row i of
// reader r's queries is at q + i * q_row + r * head_size, and so on; keys and values have one head.
// Null: absent. float32 and float64; the loops of bfloat16, which not all processors have, take
// float32 arrays of values that bfloat16 holds.
struct AttentionArgs {
  int64_t queries = 0, keys = 0, readers = 1, head_size = 0, value_size = 0;
  int64_t q_row = 0, k_row = 0, v_row = 0, o_row = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* o = nullptr;    // read by the gradient
  void* lse = nullptr;  // (readers, queries); read by the gradient
  double scale = 1;
  bool causal = false;
  int64_t window = 0;
  int64_t query_start = 0;  // global index of query 0
  const uint8_t *query_mask = nullptr, *key_mask = nullptr;
  const int32_t *query_segments = nullptr, *key_segments = nullptr;
  const int32_t *query_positions = nullptr, *key_positions = nullptr;
  const uint8_t* mask = nullptr;  // (queries, keys) of reader 0
  int64_t mask_reader = 0;        // elements from a reader's mask to the next
  // Dropout: of bits below the threshold; factor 1: none.
  uint32_t threshold = 0;
  double factor = 1;
  RandomStream stream;
  uint64_t first_index = 0, reader_index = 0;  // of pair (0, 0) of reader 0; to the next reader
  void (*random_bits)(uint32_t* out, uint64_t first, int64_t n,
                      const RandomStream& stream) = nullptr;
  // Of the gradient; the cotangent of lse may be absent.
  const void *o_cotangent = nullptr, *lse_cotangent = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
};
using AttentionLoop = void (*)(const AttentionArgs& args, void* scratch);

struct KernelTable {
  ElementLoop element[static_cast<int>(ElementOp::kCount)][kNumTypes] = {};
  // [0]: a is one element for all of b, [1]: b is. Binary ops that need no vector math only.
  ElementLoop element_by_scalar[2][static_cast<int>(ElementOp::kCount)][kNumTypes] = {};
  ElementLoop cast[kNumTypes][kNumTypes] = {};  // [from][to]; 16 bits to and from float32 only
  ReduceRows reduce_rows[static_cast<int>(Reduction::kCount)][kNumTypes] = {};
  ReduceColumns reduce_columns[static_cast<int>(Reduction::kCount)][kNumTypes] = {};
  CombineMany combine_many[static_cast<int>(Reduction::kCount)][kNumTypes] = {};
  // out[i] = bits of element first + i.
  void (*random_bits)(uint32_t* out, uint64_t first, int64_t n,
                      const RandomStream& stream) = nullptr;
  // out[i] = bits[i] < threshold ? 0 : x[i] * scale
  void (*dropout[kNumTypes])(void* out, const void* x, const uint32_t* bits, int64_t n,
                             uint32_t threshold, double scale) = {};
  void (*optimizer[static_cast<int>(OptimizerRule::kCount)][kNumTypes])(const OptimizerArgs& args,
                                                                        int64_t begin,
                                                                        int64_t end) = {};
  GemmLoop gemm[kNumTypes] = {};  // float32 and float64
  size_t gemm_scratch_bytes = 0;
  PanelLoop panel[static_cast<int>(PanelKind::kCount)][kNumTypes] = {};  // float32 and float64
  int64_t panel_lanes[kNumTypes] = {};
  int64_t panel_columns[kNumTypes] = {};
  // y[c] = largest (mean) of the window; floats, as the next three.
  void (*max_pool[kNumTypes])(void* y, const PoolArgs& window) = {};
  void (*avg_pool[kNumTypes])(void* y, const PoolArgs& window) = {};
  // Adds dy[c] to dx where x has its first largest, dy[c] / cells to every cell. Of 16-bit
  // elements dx is float32.
  void (*max_pool_grad[kNumTypes])(void* dx, const void* dy, const PoolArgs& window) = {};
  void (*avg_pool_grad[kNumTypes])(void* dx, const void* dy, const PoolArgs& window) = {};
  // Of one reader; of all readers together.
  AttentionLoop attention[kNumTypes] = {}, attention_grad[kNumTypes] = {};
  int64_t (*attention_scratch[kNumTypes])(const AttentionArgs& args, bool is_grad) = {};  // bytes
  // out[c] = sum of u[r, c], out[channels + c] = sum of u[r, c] * v[r, c], in double; r < rows.
  void (*channel_sums[kNumTypes])(double* out, const void* u, const void* v, int64_t rows,
                                  int64_t channels) = {};
};

// The table for this processor.
const KernelTable& kernels();
// "x86-64-v4", as chosen for this processor.
const char* kernel_level();
// The tables of all levels that this processor can run, lowest first; for tests.
int num_kernel_levels();
const KernelTable& kernels_of_level(int level);

}  // namespace meshtrain::cpu
