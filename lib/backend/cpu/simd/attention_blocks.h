// Attention and its gradient, a block of queries and keys at a time with running row maxima and
// sums (T. Dao, "FlashAttention-2", 2023). Keys and values are packed once for each head. The order
// of additions depends on shapes and on where the queries begin, so runs repeat bit for bit. For
// sources that are compiled with -ffp-contract=fast.
#pragma once

#include "backend/cpu/simd/attention_rows.h"

namespace meshtrain::cpu {
namespace {

// --- products of blocks --------------------------------------------------------------------------

// C (m, n) = A (m, k) B (k, n) (+ C). Element (i, p) of A is at i * row + p * step; rows up to the
// next multiple of kTileRows are read. B is of pack_b, its panels `panel` elements apart.
template <class Form, int64_t row, int64_t step>
void multiply(const typename Form::Packed* a, int64_t a_panel, const typename Form::Packed* b,
              int64_t panel, typename Form::Sum* c, int64_t c_row, int64_t m, int64_t n, int64_t k,
              bool accumulate) {
  using P = typename Form::Packed;
  using T = typename Form::Sum;
  static_assert(sizeof(P) == sizeof(T));
  constexpr int C = kTileColumns<T>, L = kVectorBytes / static_cast<int>(sizeof(T));
  for (int64_t j = 0; j < n; j += C) {
    const P* const columns = b + j / C * panel;
    for (int64_t i = 0; i < m; i += kTileRows) {
      const P* const rows = a + i / kTileRows * a_panel;
      Vec<T> sum[kTileRows][kTileVectors];
      for (int r = 0; r < kTileRows; ++r) {
        for (int v = 0; v < kTileVectors; ++v)
          sum[r][v] = Vec<T>{};
      }
      for (int64_t p = 0; p < k; ++p) {
        Vec<P> right[kTileVectors];
        for (int v = 0; v < kTileVectors; ++v)
          right[v] = *reinterpret_cast<const Vec<P>*>(columns + p * C + v * L);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          const P left = rows[r * row + p * step];
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v)
            sum[r][v] = Form::add_product(sum[r][v], left, right[v]);
        }
      }
      store_tile<T>(sum, c + i * c_row + j, c_row, smaller_of(m - i, kTileRows),
                    smaller_of(n - j, C), accumulate);
    }
  }
}

template <class T>
void copy_rows(const T* from, int64_t rows, int64_t columns, void* to, int64_t row) {
  for (int64_t j = 0; j < rows; ++j) {
    for (int64_t d = 0; d < columns; ++d)
      static_cast<T*>(to)[j * row + d] = from[j * columns + d];
  }
}

// --- blocks of queries ---------------------------------------------------------------------------
//
// A Form says how operands of products are packed. Sum: the elements of scores, sums and results;
// Packed: those of operands, `steps(k)` for k terms of a sum; pack_rows, pack_columns, pack_across:
// A, B and the transpose of B; rows_of, columns_of: scores as A, written to `left` (of kLeft
// elements) where they are packed otherwise; kRow: elements of a row of rows_of.

// A of Form::pack_rows, B of Form::pack_across; C has rows of kKeyBlock.
template <class Form>
void multiply_packed(const typename Form::Packed* a, const typename Form::Packed* b,
                     typename Form::Sum* c, int64_t m, int64_t n, int64_t k) {
  const int64_t steps = Form::steps(k);
  multiply<Form, 1, kTileRows>(a, kTileRows * steps, b, kTileColumns<typename Form::Sum> * steps, c,
                               kKeyBlock, m, n, steps, false);
}
// A is a block of scores: of Form::rows_of (m, k), or of Form::columns_of (k, m).
template <class Form>
void multiply_left(const typename Form::Packed* a, const typename Form::Packed* b, int64_t panel,
                   typename Form::Sum* c, int64_t c_row, int64_t m, int64_t n, int64_t k) {
  multiply<Form, Form::kRow, 1>(a, kTileRows * Form::kRow, b, panel, c, c_row, m, n, Form::steps(k),
                                true);
}
template <class Form>
void multiply_transposed(const typename Form::Packed* a, const typename Form::Packed* b,
                         typename Form::Sum* c, int64_t c_row, int64_t m, int64_t n, int64_t k) {
  const int64_t steps = Form::steps(k);
  multiply<Form, 1, kKeyBlock>(a, kTileRows, b, kTileColumns<typename Form::Sum> * steps, c, c_row,
                               m, n, steps, true);
}

template <class Form>
typename Form::Packed* packed(Parts<typename Form::Sum>& parts, int64_t elements) {
  return reinterpret_cast<typename Form::Packed*>(parts.take(elements));
}

template <class Form>
struct ForwardParts {
  using T = typename Form::Sum;
  using P = typename Form::Packed;
  ForwardParts(const AttentionArgs& a, Parts<T> parts)
      : keys(packed<Form>(parts, whole_columns<T>(a.keys) * Form::steps(a.head_size))),
        values(packed<Form>(parts, Form::steps(a.keys) * whole_columns<T>(a.value_size))),
        queries(packed<Form>(parts, kQueryBlock * Form::steps(a.head_size))),
        left(packed<Form>(parts, Form::kLeft)),
        scores(parts.take(kQueryBlock * kKeyBlock)),
        sums(parts.take(kQueryBlock * a.value_size)),
        largest(parts.take(kQueryBlock)),
        total(parts.take(kQueryBlock)),
        bits(reinterpret_cast<uint32_t*>(parts.take(kKeyBlock))),
        bytes(parts.bytes()) {}
  P *keys, *values, *queries, *left;
  T *scores, *sums, *largest, *total;
  uint32_t* bits;
  int64_t bytes;
};

// The columns of a (rows, columns) matrix, in blocks of kKeyBlock rows.
template <class Form>
void pack_row_blocks(const void* from, int64_t row, int64_t rows, int64_t columns,
                     typename Form::Packed* out) {
  using T = typename Form::Sum;
  for (int64_t j = 0; j < rows; j += kKeyBlock) {
    Form::pack_columns(static_cast<const T*>(from) + j * row, row, smaller_of(kKeyBlock, rows - j),
                       columns, out + Form::steps(j) * whole_columns<T>(columns));
  }
}

// Elements from a panel of pack_row_blocks' block at key j to the next.
template <class Form>
int64_t panel_of_block(const AttentionArgs& a, int64_t j) {
  return Form::steps(smaller_of(kKeyBlock, a.keys - j)) * kTileColumns<typename Form::Sum>;
}

// One block of queries [i, i + m).
template <class Form>
void attend(const AttentionArgs& a, const ForwardParts<Form>& s, int64_t i, int64_t m) {
  using T = typename Form::Sum;
  const int64_t D = a.head_size, E = a.value_size;
  Form::pack_rows(static_cast<const T*>(a.q) + i * a.q_row, a.q_row, m, D, s.queries);
  for (int64_t r = 0; r < m; ++r) {
    s.largest[r] = minus_infinity<T>();
    s.total[r] = 0;
  }
  for (int64_t x = 0; x < m * E; ++x)
    s.sums[x] = 0;
  const Range keys = keys_of(a, i, i + m - 1);
  for (int64_t j = keys.begin / kKeyBlock * kKeyBlock; j < keys.end; j += kKeyBlock) {
    const int64_t n = smaller_of(kKeyBlock, keys.end - j);
    multiply_packed<Form>(s.queries, s.keys + j * Form::steps(D), s.scores, m, whole_columns<T>(n),
                          D);
    for (int64_t r = 0; r < m; ++r) {
      T* row = s.scores + r * kKeyBlock;
      mask_row(a, 0, i + r, j, n, row);
      const uint32_t* bits = nullptr;
      if (a.factor != 1) {
        dropout_bits(a, 0, i + r, j, n, s.bits);
        bits = s.bits;
      }
      const T old = soften_row(row, n, s.largest[r], s.total[r], bits, a);
#pragma omp simd
      for (int64_t e = 0; e < E; ++e)
        s.sums[r * E + e] *= old;
    }
    multiply_left<Form>(Form::rows_of(s.scores, m, n, s.left),
                        s.values + Form::steps(j) * whole_columns<T>(E), panel_of_block<Form>(a, j),
                        s.sums, E, m, E, n);
  }
  for (int64_t r = 0; r < m; ++r) {
    const T total = s.total[r];
    const T inverse = total == 0 ? T{0} : 1 / total;
    T* out = static_cast<T*>(a.o) + (i + r) * a.o_row;
#pragma omp simd
    for (int64_t e = 0; e < E; ++e)
      out[e] = s.sums[r * E + e] * inverse;
    static_cast<T*>(a.lse)[i + r] = s.largest[r] + static_cast<T>(log(static_cast<double>(total)));
  }
}

template <class Form>
void attention(const AttentionArgs& a, void* scratch) {
  using T = typename Form::Sum;
  const ForwardParts<Form> s(a, Parts<T>(scratch));
  Form::pack_across(static_cast<const T*>(a.k), a.k_row, a.keys, a.head_size, s.keys);
  pack_row_blocks<Form>(a.v, a.v_row, a.keys, a.value_size, s.values);
  const int64_t block = query_block(a.queries);
  for (int64_t i = 0; i < a.queries; i += block)
    attend(a, s, i, smaller_of(block, a.queries - i));
}

template <class Form>
struct GradParts {
  using T = typename Form::Sum;
  using P = typename Form::Packed;
  GradParts(const AttentionArgs& a, Parts<T> parts)
      : keys_across(packed<Form>(parts, whole_columns<T>(a.keys) * Form::steps(a.head_size))),
        values_across(packed<Form>(parts, whole_columns<T>(a.keys) * Form::steps(a.value_size))),
        keys(packed<Form>(parts, Form::steps(a.keys) * whole_columns<T>(a.head_size))),
        dk(parts.take(a.keys * a.head_size)),
        dv(parts.take(a.keys * a.value_size)),
        queries(packed<Form>(parts, kQueryBlock * Form::steps(a.head_size))),
        cotangents(packed<Form>(parts, kQueryBlock * Form::steps(a.value_size))),
        query_columns(
            packed<Form>(parts, Form::steps(kQueryBlock) * whole_columns<T>(a.head_size))),
        cotangent_columns(
            packed<Form>(parts, Form::steps(kQueryBlock) * whole_columns<T>(a.value_size))),
        left(packed<Form>(parts, Form::kLeft)),
        p(parts.take(kQueryBlock * kKeyBlock)),
        ds(parts.take(kQueryBlock * kKeyBlock + kTileRows)),  // read beyond its last row
        dq(parts.take(kQueryBlock * a.head_size)),
        delta(parts.take(kQueryBlock)),
        bits(reinterpret_cast<uint32_t*>(parts.take(kKeyBlock))),
        bytes(parts.bytes()) {}
  P *keys_across, *values_across, *keys;  // of all keys
  T *dk, *dv;
  P *queries, *cotangents, *query_columns, *cotangent_columns, *left;
  T *p, *ds, *dq, *delta;
  uint32_t* bits;
  int64_t bytes;
};

// One block of queries [i, i + m) of one reader.
template <class Form>
void differentiate(const AttentionArgs& a, const GradParts<Form>& s, int64_t reader, int64_t i,
                   int64_t m) {
  using T = typename Form::Sum;
  const int64_t D = a.head_size, E = a.value_size;
  const T* q = static_cast<const T*>(a.q) + i * a.q_row + reader * D;
  const int64_t at = i * a.o_row + reader * E;
  const T* o = static_cast<const T*>(a.o) + at;
  const T* g = static_cast<const T*>(a.o_cotangent) + at;
  const T* lse = static_cast<const T*>(a.lse) + reader * a.queries + i;
  const T* g_lse = a.lse_cotangent == nullptr
                       ? nullptr
                       : static_cast<const T*>(a.lse_cotangent) + reader * a.queries + i;
  Form::pack_rows(q, a.q_row, m, D, s.queries);
  Form::pack_rows(g, a.o_row, m, E, s.cotangents);
  Form::pack_columns(q, a.q_row, m, D, s.query_columns);
  Form::pack_columns(g, a.o_row, m, E, s.cotangent_columns);
  for (int64_t r = 0; r < m; ++r) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t e = 0; e < E; ++e)
      sum += o[r * a.o_row + e] * g[r * a.o_row + e];
    s.delta[r] = g_lse == nullptr ? sum : sum - g_lse[r];
  }
  for (int64_t x = 0; x < m * D; ++x)
    s.dq[x] = 0;
  const Range keys = keys_of(a, i, i + m - 1);
  for (int64_t j = keys.begin / kKeyBlock * kKeyBlock; j < keys.end; j += kKeyBlock) {
    const int64_t n = smaller_of(kKeyBlock, keys.end - j);
    const int64_t width = whole_columns<T>(n);
    multiply_packed<Form>(s.queries, s.keys_across + j * Form::steps(D), s.p, m, width, D);
    multiply_packed<Form>(s.cotangents, s.values_across + j * Form::steps(E), s.ds, m, width, E);
    for (int64_t r = 0; r < m; ++r) {
      mask_row(a, reader, i + r, j, n, s.p + r * kKeyBlock);
      const uint32_t* bits = nullptr;
      if (a.factor != 1) {
        dropout_bits(a, reader, i + r, j, n, s.bits);
        bits = s.bits;
      }
      differentiate_row(a, lse[r], s.delta[r], n, bits, s.p + r * kKeyBlock, s.ds + r * kKeyBlock);
    }
    multiply_transposed<Form>(Form::columns_of(s.p, m, n, s.left), s.cotangent_columns,
                              s.dv + j * E, E, n, E, m);
    multiply_transposed<Form>(Form::columns_of(s.ds, m, n, s.left), s.query_columns, s.dk + j * D,
                              D, n, D, m);
    multiply_left<Form>(Form::rows_of(s.ds, m, n, s.left),
                        s.keys + Form::steps(j) * whole_columns<T>(D), panel_of_block<Form>(a, j),
                        s.dq, D, m, D, n);
  }
  T* dq = static_cast<T*>(a.dq) + i * a.q_row + reader * D;
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t d = 0; d < D; ++d)
      dq[r * a.q_row + d] = s.dq[r * D + d];
  }
}

template <class Form>
void attention_grad(const AttentionArgs& a, void* scratch) {
  using T = typename Form::Sum;
  const GradParts<Form> s(a, Parts<T>(scratch));
  const int64_t D = a.head_size, E = a.value_size;
  Form::pack_across(static_cast<const T*>(a.k), a.k_row, a.keys, D, s.keys_across);
  Form::pack_across(static_cast<const T*>(a.v), a.v_row, a.keys, E, s.values_across);
  pack_row_blocks<Form>(a.k, a.k_row, a.keys, D, s.keys);
  for (int64_t x = 0; x < a.keys * D; ++x)
    s.dk[x] = 0;
  for (int64_t x = 0; x < a.keys * E; ++x)
    s.dv[x] = 0;
  const int64_t block = query_block(a.queries);
  for (int64_t reader = 0; reader < a.readers; ++reader) {
    for (int64_t i = 0; i < a.queries; i += block)
      differentiate(a, s, reader, i, smaller_of(block, a.queries - i));
  }
  copy_rows(s.dk, a.keys, D, a.dk, a.k_row);
  copy_rows(s.dv, a.keys, E, a.dv, a.v_row);
}

template <class Form>
int64_t attention_scratch(const AttentionArgs& a, bool is_grad) {
  const Parts<typename Form::Sum> parts(nullptr);
  return is_grad ? GradParts<Form>(a, parts).bytes : ForwardParts<Form>(a, parts).bytes;
}

template <class Form>
void fill_form(KernelTable& table, int type) {
  table.attention[type] = attention<Form>;
  table.attention_grad[type] = attention_grad<Form>;
  table.attention_scratch[type] = attention_scratch<Form>;
}

}  // namespace
}  // namespace meshtrain::cpu
