// Attention and its gradient, a block of queries and keys at a time with running row maxima and
// sums (T. Dao, "FlashAttention-2", 2023). Keys and values are packed once for each head. The order
// of additions depends on shapes and on where the queries begin, so runs repeat bit for bit.
#include "backend/cpu/simd/exponential.h"
#include "backend/cpu/simd/tile.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kQueryBlock = 96;  // at most; a multiple of every kTileRows
constexpr int64_t kKeyBlock = 128;   // of every kTileColumns

template <class T>
T minus_infinity() {
  return -static_cast<T>(__builtin_inf());
}

inline int64_t smaller_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t larger_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}
template <class T>
int64_t whole_columns(int64_t n) {
  constexpr int64_t C = kTileColumns<T>;
  return (n + C - 1) / C * C;
}

// Queries of a block: with few, several blocks skip keys that `causal` leaves out.
inline int64_t query_block(int64_t queries) {
  const int64_t wanted = (queries / 4 + kTileRows - 1) / kTileRows * kTileRows;
  return smaller_of(larger_of(wanted, 2 * kTileRows), kQueryBlock);
}

// --- products of blocks --------------------------------------------------------------------------

// C (m, n) = A (m, k) B (k, n) (+ C). Element (i, p) of A is at i * row + p * step; rows up to the
// next multiple of kTileRows are read. B is of pack_b, its panels `panel` elements apart.
template <int64_t row, int64_t step, class T>
void multiply(const T* a, int64_t a_panel, const T* b, int64_t panel, T* c, int64_t c_row,
              int64_t m, int64_t n, int64_t k, bool accumulate) {
  constexpr int C = kTileColumns<T>, L = kVectorBytes / static_cast<int>(sizeof(T));
  for (int64_t j = 0; j < n; j += C) {
    const T* const columns = b + j / C * panel;
    for (int64_t i = 0; i < m; i += kTileRows) {
      const T* const rows = a + i / kTileRows * a_panel;
      Vec<T> sum[kTileRows][kTileVectors];
      for (int r = 0; r < kTileRows; ++r) {
        for (int v = 0; v < kTileVectors; ++v)
          sum[r][v] = Vec<T>{};
      }
      for (int64_t p = 0; p < k; ++p) {
        Vec<T> right[kTileVectors];
        for (int v = 0; v < kTileVectors; ++v)
          right[v] = *reinterpret_cast<const Vec<T>*>(columns + p * C + v * L);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          const T left = rows[r * row + p * step];
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v)
            sum[r][v] += left * right[v];
        }
      }
      store_tile<T>(sum, c + i * c_row + j, c_row, smaller_of(m - i, kTileRows),
                    smaller_of(n - j, C), accumulate);
    }
  }
}

// A of pack_a.
template <class T>
void multiply_packed(const T* a, const T* b, T* c, int64_t c_row, int64_t m, int64_t n, int64_t k) {
  multiply<1, kTileRows>(a, kTileRows * k, b, kTileColumns<T> * k, c, c_row, m, n, k, false);
}
// A is a block of scores, (m, k) or, transposed, (k, m).
template <class T>
void multiply_scores(const T* scores, const T* b, int64_t panel, T* c, int64_t c_row, int64_t m,
                     int64_t n, int64_t k) {
  multiply<kKeyBlock, 1>(scores, kTileRows * kKeyBlock, b, panel, c, c_row, m, n, k, true);
}
template <class T>
void multiply_transposed(const T* scores, const T* b, T* c, int64_t c_row, int64_t m, int64_t n,
                         int64_t k) {
  multiply<1, kKeyBlock>(scores, kTileRows, b, kTileColumns<T> * k, c, c_row, m, n, k, true);
}

// As pack_b(x, 1, row, columns, rows, out): B is the transpose of x (rows, columns).
inline void pack_across(const float* x, int64_t row, int64_t rows, int64_t columns, float* out) {
  constexpr int C = kTileColumns<float>;
  for (int64_t j = 0; j < rows; j += C, out += columns * C) {
    const int64_t whole = smaller_of(rows - j, C) / 4 * 4;
    int64_t p = 0;
    for (; p + 4 <= columns; p += 4) {
      for (int64_t c = 0; c < whole; c += 4) {
        transpose_four(x + (j + c) * row + p, row, out + p * C + c, C);
      }
    }
    for (int64_t q = 0; q < columns; ++q) {  // what is left of both
      for (int64_t c = q < p ? whole : 0; c < C; ++c)
        out[q * C + c] = j + c < rows ? x[(j + c) * row + q] : 0.0f;
    }
  }
}
inline void pack_across(const double* x, int64_t row, int64_t rows, int64_t columns, double* out) {
  pack_b(x, 1, row, columns, rows, out);
}

// --- masks ---------------------------------------------------------------------------------------

struct Range {
  int64_t begin, end;
};

// Keys that `causal` and `window` leave to the queries [first, last].
Range keys_of(const AttentionArgs& a, int64_t first, int64_t last) {
  Range out{0, a.keys};
  if (a.query_positions != nullptr) {
    return out;
  }
  if (a.causal) {
    out.end = smaller_of(out.end, a.query_start + last + 1);
  }
  if (a.window > 0) {
    out.begin = larger_of(0, a.query_start + first - a.window + 1);
    out.end = smaller_of(out.end, a.query_start + last + a.window);
  }
  out.end = larger_of(out.end, 0);
  out.begin = smaller_of(out.begin, out.end);
  return out;
}

// f(j) of the columns [0, width), a multiple of kTileColumns: loops over whole vectors only.
template <class T, class F>
void each_column(int64_t width, const F& f) {
  constexpr int C = kTileColumns<T>;
  for (int64_t j = 0; j < width; j += C) {
#pragma omp simd
    for (int c = 0; c < C; ++c)
      f(j + c, c);
  }
}

template <class T, class Allowed>
void keep_if(T* score, int64_t n, const Allowed& allowed) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j)
    score[j] = allowed(j) ? score[j] : minus_infinity<T>();
}

// Scales the scores of query i and keys [first, first + n), and makes those that are not allowed
// -infinity, and what is behind them to the end of their vectors.
template <class T>
void mask_row(const AttentionArgs& a, int64_t reader, int64_t i, int64_t first, int64_t n,
              T* score) {
  Range keys = keys_of(a, i, i);
  if (a.query_mask != nullptr && a.query_mask[i] == 0) {
    keys.end = keys.begin;
  }
  const auto begin = static_cast<int>(smaller_of(larger_of(keys.begin - first, 0), n));
  const auto end = static_cast<int>(smaller_of(keys.end - first, n));
  const T scale = static_cast<T>(a.scale);
  each_column<T>(whole_columns<T>(n), [=](int64_t j, int) {
    const int column = static_cast<int>(j);
    score[j] = (column >= begin) & (column < end) ? score[j] * scale : minus_infinity<T>();
  });
  if (a.key_mask != nullptr) {
    const uint8_t* mask = a.key_mask + first;
    keep_if(score, n, [=](int64_t j) { return mask[j] != 0; });
  }
  if (a.query_segments != nullptr) {
    const int32_t own = a.query_segments[i];
    const int32_t* segments = a.key_segments + first;
    keep_if(score, n, [=](int64_t j) { return segments[j] == own; });
  }
  if (a.query_positions != nullptr) {
    const int64_t own = a.query_positions[i], window = a.window;
    const int32_t* positions = a.key_positions + first;
    if (a.causal)
      keep_if(score, n, [=](int64_t j) { return positions[j] <= own; });
    if (window > 0) {
      keep_if(score, n, [=](int64_t j) {
        return (positions[j] > own - window) & (positions[j] < own + window);
      });
    }
  }
  if (a.mask != nullptr) {
    const uint8_t* mask = a.mask + reader * a.mask_reader + i * a.keys + first;
    keep_if(score, n, [=](int64_t j) { return mask[j] != 0; });
  }
}

// bits[j] of the pairs of query i and keys first + j.
void dropout_bits(const AttentionArgs& a, int64_t reader, int64_t i, int64_t first, int64_t n,
                  uint32_t* bits) {
  const uint64_t row = a.first_index + static_cast<uint64_t>(reader) * a.reader_index +
                       static_cast<uint64_t>(i * a.keys + first);
  a.random_bits(bits, row, n, a.stream);
}

// Turns masked scores into exp(score - largest so far), with dropout, and updates the row's maximum
// and sum. Returns what the sums up to now are to be scaled by.
template <class T>
T soften_row(T* score, int64_t n, T& largest, T& sum, const uint32_t* bits,
             const AttentionArgs& a) {
  constexpr int C = kTileColumns<T>;
  const int64_t width = whole_columns<T>(n);
  T columns[C];
  for (int c = 0; c < C; ++c)
    columns[c] = largest;
  each_column<T>(
      width, [&](int64_t j, int c) { columns[c] = score[j] > columns[c] ? score[j] : columns[c]; });
  T next = largest;
#pragma omp simd reduction(max : next)
  for (int c = 0; c < C; ++c)
    next = columns[c] > next ? columns[c] : next;
  if (next == minus_infinity<T>()) {
    T others = 0;  // NaN where a score is
    for (int64_t j = 0; j < n; ++j) {
      others += score[j] == minus_infinity<T>() ? T{0} : score[j];
      score[j] = 0;
    }
    sum += others;
    return 1;
  }
  for (int c = 0; c < C; ++c)
    columns[c] = 0;
  each_column<T>(width, [&](int64_t j, int c) {
    const T p = exp_of(score[j] - next);
    score[j] = p;
    columns[c] += p;
  });
  T added = 0;
#pragma omp simd reduction(+ : added)
  for (int c = 0; c < C; ++c)
    added += columns[c];
  const T old = exp_of(largest - next);
  largest = next;
  sum = sum * old + added;
  if (bits != nullptr) {
    const T factor = static_cast<T>(a.factor);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j)
      score[j] = bits[j] < a.threshold ? T{0} : score[j] * factor;
  }
  return old;
}

// Parts of scratch, one after the other.
template <class T>
class Parts {
 public:
  explicit Parts(void* memory) : next_(static_cast<T*>(memory)) {}
  T* take(int64_t elements) {
    T* part = next_;
    next_ += (elements + 15) / 16 * 16;
    return part;
  }
  int64_t bytes() const {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(next_));  // of parts that begin at null
  }

 private:
  T* next_;
};

template <class T>
struct ForwardParts {
  ForwardParts(const AttentionArgs& a, Parts<T> parts)
      : keys(parts.take(whole_columns<T>(a.keys) * a.head_size)),
        values(parts.take(a.keys * whole_columns<T>(a.value_size))),
        queries(parts.take(kQueryBlock * a.head_size)),
        scores(parts.take(kQueryBlock * kKeyBlock)),
        sums(parts.take(kQueryBlock * a.value_size)),
        largest(parts.take(kQueryBlock)),
        total(parts.take(kQueryBlock)),
        bits(reinterpret_cast<uint32_t*>(parts.take(kKeyBlock))),
        bytes(parts.bytes()) {}
  T *keys, *values, *queries, *scores, *sums, *largest, *total;
  uint32_t* bits;
  int64_t bytes;
};

// The columns of a (rows, columns) matrix, in blocks of kKeyBlock rows.
template <class T>
void pack_row_blocks(const void* from, int64_t row, int64_t rows, int64_t columns, T* out) {
  for (int64_t j = 0; j < rows; j += kKeyBlock) {
    pack_b(static_cast<const T*>(from) + j * row, row, 1, smaller_of(kKeyBlock, rows - j), columns,
           out + j * whole_columns<T>(columns));
  }
}

// Elements from a panel of pack_row_blocks' block at key j to the next.
template <class T>
int64_t panel_of_block(const AttentionArgs& a, int64_t j) {
  return smaller_of(kKeyBlock, a.keys - j) * kTileColumns<T>;
}

// One block of queries [i, i + m).
template <class T>
void attend(const AttentionArgs& a, const ForwardParts<T>& s, int64_t i, int64_t m) {
  const int64_t D = a.head_size, E = a.value_size;
  pack_a(static_cast<const T*>(a.q) + i * a.q_row, a.q_row, 1, m, D, s.queries);
  for (int64_t r = 0; r < m; ++r) {
    s.largest[r] = minus_infinity<T>();
    s.total[r] = 0;
  }
  for (int64_t x = 0; x < m * E; ++x)
    s.sums[x] = 0;
  const Range keys = keys_of(a, i, i + m - 1);
  for (int64_t j = keys.begin / kKeyBlock * kKeyBlock; j < keys.end; j += kKeyBlock) {
    const int64_t n = smaller_of(kKeyBlock, keys.end - j);
    multiply_packed(s.queries, s.keys + j * D, s.scores, kKeyBlock, m, whole_columns<T>(n), D);
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
    multiply_scores(s.scores, s.values + j * whole_columns<T>(E), panel_of_block<T>(a, j), s.sums,
                    E, m, E, n);
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

template <class T>
void attention(const AttentionArgs& a, void* scratch) {
  const ForwardParts<T> s(a, Parts<T>(scratch));
  pack_across(static_cast<const T*>(a.k), a.k_row, a.keys, a.head_size, s.keys);
  pack_row_blocks(a.v, a.v_row, a.keys, a.value_size, s.values);
  const int64_t block = query_block(a.queries);
  for (int64_t i = 0; i < a.queries; i += block)
    attend(a, s, i, smaller_of(block, a.queries - i));
}

template <class T>
struct GradParts {
  GradParts(const AttentionArgs& a, Parts<T> parts)
      : keys_across(parts.take(whole_columns<T>(a.keys) * a.head_size)),
        values_across(parts.take(whole_columns<T>(a.keys) * a.value_size)),
        keys(parts.take(a.keys * whole_columns<T>(a.head_size))),
        dk(parts.take(a.keys * a.head_size)),
        dv(parts.take(a.keys * a.value_size)),
        queries(parts.take(kQueryBlock * a.head_size)),
        cotangents(parts.take(kQueryBlock * a.value_size)),
        query_columns(parts.take(kQueryBlock * whole_columns<T>(a.head_size))),
        cotangent_columns(parts.take(kQueryBlock * whole_columns<T>(a.value_size))),
        p(parts.take(kQueryBlock * kKeyBlock)),
        ds(parts.take(kQueryBlock * kKeyBlock + kTileRows)),  // read beyond its last row
        dq(parts.take(kQueryBlock * a.head_size)),
        delta(parts.take(kQueryBlock)),
        bits(reinterpret_cast<uint32_t*>(parts.take(kKeyBlock))),
        bytes(parts.bytes()) {}
  T *keys_across, *values_across, *keys, *dk, *dv;  // of all keys
  T *queries, *cotangents, *query_columns, *cotangent_columns, *p, *ds, *dq, *delta;
  uint32_t* bits;
  int64_t bytes;
};

// From scores in p and products of cotangents and values in ds to P after dropout and the cotangent
// of the unscaled scores.
template <class T>
void differentiate_row(const AttentionArgs& a, T lse, T delta, int64_t n, const uint32_t* bits,
                       T* p, T* ds) {
  if (lse == minus_infinity<T>()) {
    for (int64_t j = 0; j < n; ++j)
      p[j] = ds[j] = 0;
    return;
  }
  const T scale = static_cast<T>(a.scale), factor = static_cast<T>(a.factor);
  if (bits == nullptr) {
    each_column<T>(whole_columns<T>(n), [=](int64_t j, int) {
      p[j] = exp_of(p[j] - lse);
      ds[j] = p[j] * (ds[j] - delta) * scale;
    });
    return;
  }
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const T kept = bits[j] < a.threshold ? T{0} : factor;
    const T whole = exp_of(p[j] - lse);
    p[j] = whole * kept;
    ds[j] = whole * (ds[j] * kept - delta) * scale;
  }
}

// One block of queries [i, i + m) of one reader.
template <class T>
void differentiate(const AttentionArgs& a, const GradParts<T>& s, int64_t reader, int64_t i,
                   int64_t m) {
  const int64_t D = a.head_size, E = a.value_size;
  const T* q = static_cast<const T*>(a.q) + i * a.q_row + reader * D;
  const int64_t at = i * a.o_row + reader * E;
  const T* o = static_cast<const T*>(a.o) + at;
  const T* g = static_cast<const T*>(a.o_cotangent) + at;
  const T* lse = static_cast<const T*>(a.lse) + reader * a.queries + i;
  const T* g_lse = a.lse_cotangent == nullptr
                       ? nullptr
                       : static_cast<const T*>(a.lse_cotangent) + reader * a.queries + i;
  pack_a(q, a.q_row, 1, m, D, s.queries);
  pack_a(g, a.o_row, 1, m, E, s.cotangents);
  pack_b(q, a.q_row, 1, m, D, s.query_columns);
  pack_b(g, a.o_row, 1, m, E, s.cotangent_columns);
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
    multiply_packed(s.queries, s.keys_across + j * D, s.p, kKeyBlock, m, width, D);
    multiply_packed(s.cotangents, s.values_across + j * E, s.ds, kKeyBlock, m, width, E);
    for (int64_t r = 0; r < m; ++r) {
      mask_row(a, reader, i + r, j, n, s.p + r * kKeyBlock);
      const uint32_t* bits = nullptr;
      if (a.factor != 1) {
        dropout_bits(a, reader, i + r, j, n, s.bits);
        bits = s.bits;
      }
      differentiate_row(a, lse[r], s.delta[r], n, bits, s.p + r * kKeyBlock, s.ds + r * kKeyBlock);
    }
    multiply_transposed(s.p, s.cotangent_columns, s.dv + j * E, E, n, E, m);
    multiply_transposed(s.ds, s.query_columns, s.dk + j * D, D, n, D, m);
    multiply_scores(s.ds, s.keys + j * whole_columns<T>(D), panel_of_block<T>(a, j), s.dq, D, m, D,
                    n);
  }
  T* dq = static_cast<T*>(a.dq) + i * a.q_row + reader * D;
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t d = 0; d < D; ++d)
      dq[r * a.q_row + d] = s.dq[r * D + d];
  }
}

template <class T>
void copy_rows(const T* from, int64_t rows, int64_t columns, void* to, int64_t row) {
  for (int64_t j = 0; j < rows; ++j) {
    for (int64_t d = 0; d < columns; ++d)
      static_cast<T*>(to)[j * row + d] = from[j * columns + d];
  }
}

template <class T>
void attention_grad(const AttentionArgs& a, void* scratch) {
  const GradParts<T> s(a, Parts<T>(scratch));
  const int64_t D = a.head_size, E = a.value_size;
  pack_across(static_cast<const T*>(a.k), a.k_row, a.keys, D, s.keys_across);
  pack_across(static_cast<const T*>(a.v), a.v_row, a.keys, E, s.values_across);
  pack_row_blocks(a.k, a.k_row, a.keys, D, s.keys);
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

template <class T>
int64_t attention_scratch(const AttentionArgs& a, bool is_grad) {
  const Parts<T> parts(nullptr);
  return is_grad ? GradParts<T>(a, parts).bytes : ForwardParts<T>(a, parts).bytes;
}

template <class T>
void fill_type(KernelTable& table) {
  table.attention[kIndexOf<T>] = attention<T>;
  table.attention_grad[kIndexOf<T>] = attention_grad<T>;
  table.attention_scratch[kIndexOf<T>] = attention_scratch<T>;
}

}  // namespace

void MESHTRAIN_FILL(fill_attention)(KernelTable& table) {
  fill_type<float>(table);
  fill_type<double>(table);
}

}  // namespace meshtrain::cpu
