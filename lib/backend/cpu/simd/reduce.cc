// Reductions of rows and columns, and the sum of several buffers.
//
// Floating sums have one fixed order: lanes of 64 bytes, reduced pairwise at the end of a block;
// block sums are added up in double (rows) or as a second level (columns). So float32 keeps its
// accuracy over millions of terms, and the result depends on nothing but the number of rows and
// columns.
#include "backend/cpu/simd/half.h"

namespace meshtrain::cpu {
namespace {

template <class T>
struct Vectors {
  // 64 bytes whatever the instruction set: the order of a sum is the same on all of them.
  typedef T type __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
};
template <class T>
using Vec = typename Vectors<T>::type;
template <class T>
constexpr int kLanes = 64 / sizeof(T);

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const Vec<T>*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<Vec<T>*>(p) = v;
}

// The three ways to combine; T is the wrapping type for integers.
struct Sum {
  template <class V>
  static inline V of(V a, V b) {
    return a + b;
  }
};
struct Max {
  template <class V>
  static inline V of(V a, V b) {
    return ((a >= b) | (a != a)) ? a : b;
  }
};
struct Min {
  template <class V>
  static inline V of(V a, V b) {
    return ((a <= b) | (a != a)) ? a : b;
  }
};
template <class Op>
constexpr bool kIsSum = false;
template <>
constexpr bool kIsSum<Sum> = true;

// Sums wrap for integers; comparisons need the sign.
template <class Op, class T>
struct WorkType {
  using type = T;
};
template <class T>
struct WorkType<Sum, T> {
  using type = mt::Wrap<T>;
};

constexpr int64_t kEight = 8;
template <class T>
struct IntOf;
template <>
struct IntOf<float> {
  using type = int32_t;
};
template <>
struct IntOf<double> {
  using type = int64_t;
};
template <class T>
struct EightLanes {
  typedef typename IntOf<T>::type places __attribute__((vector_size(kEight * sizeof(T))));
  typedef T type __attribute__((vector_size(kEight * sizeof(T)), aligned(sizeof(T)), may_alias));
};
template <class T>
using Eight = typename EightLanes<T>::type;

template <class T>
inline Eight<T> load_eight(const T* p) {
  return *reinterpret_cast<const Eight<T>*>(p);
}

// Pairwise, without a branch: comparisons of unordered numbers would often be guessed wrong.
template <class Op, class T>
inline T reduce_eight(Eight<T> v) {
  using Places = typename EightLanes<T>::places;
  v = Op::of(v, __builtin_shuffle(v, Places{4, 5, 6, 7, 4, 5, 6, 7}));
  v = Op::of(v, __builtin_shuffle(v, Places{2, 3, 2, 3, 2, 3, 2, 3}));
  v = Op::of(v, __builtin_shuffle(v, Places{1, 1, 1, 1, 1, 1, 1, 1}));
  return v[0];
}

template <class Op, class T>
inline T reduce_lanes(Vec<T> v) {
  alignas(64) T lanes[kLanes<T>];
  store(lanes, v);
  if constexpr (kIsFloat<T> && kLanes<T> == 2 * kEight) {
    return reduce_eight<Op, T>(Op::of(load_eight(lanes), load_eight(lanes + kEight)));
  } else if constexpr (kIsFloat<T>) {
    return reduce_eight<Op, T>(load_eight(lanes));
  }
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i)
      lanes[i] = Op::of(lanes[i], lanes[i + width]);
  }
  return lanes[0];
}

// Up to kLanes elements, the rest filled with `fill`.
template <class T>
inline Vec<T> load_part(const T* p, int64_t n, T fill) {
  T lanes[kLanes<T>];
  for (int i = 0; i < kLanes<T>; ++i)
    lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}

template <class Op, class T>
T reduce_block(const T* x, int64_t n) {
  constexpr int L = kLanes<T>;
  const T fill = kIsSum<Op> ? T{0} : x[0];
  if (n < L)
    return reduce_lanes<Op, T>(load_part(x, n, fill));
  int64_t i = 0;
  Vec<T> total;
  if (n >= 4 * L) {
    Vec<T> a = load(x), b = load(x + L), c = load(x + 2 * L), d = load(x + 3 * L);
    for (i = 4 * L; i + 4 * L <= n; i += 4 * L) {
      a = Op::of(a, load(x + i));
      b = Op::of(b, load(x + i + L));
      c = Op::of(c, load(x + i + 2 * L));
      d = Op::of(d, load(x + i + 3 * L));
    }
    total = Op::of(Op::of(a, b), Op::of(c, d));
  } else {
    total = load(x);
    i = L;
  }
  for (; i + L <= n; i += L)
    total = Op::of(total, load(x + i));
  if (i < n)
    total = Op::of(total, load_part(x + i, n - i, fill));
  return reduce_lanes<Op, T>(total);
}

constexpr int64_t kRowBlock = 1024;

// Rows of kSize elements; combined in the order of reduce_block, without the lanes that are filled.
template <class Op, class T, int kSize>
void reduce_short_rows(T* out, const T* x, int64_t rows, int64_t row_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * row_stride;
    if constexpr (kSize == kEight) {
      out[r] = reduce_eight<Op, T>(load_eight(row));
    } else {
      T lanes[kEight];
      for (int i = 0; i < kEight; ++i)
        lanes[i] = i < kSize ? row[i] : kIsSum<Op> ? T{0} : row[0];
      out[r] = reduce_eight<Op, T>(load_eight(lanes));
    }
  }
}

// Rows of more than eight elements, the last of which fill no vector: eight lanes are combined in
// order, then pairwise.
template <class Op, class T>
void reduce_uneven_rows(T* out, const T* x, int64_t rows, int64_t columns, int64_t row_stride) {
  const int64_t whole = columns / kEight * kEight;
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * row_stride;
    Eight<T> total = load_eight(row);
    for (int64_t c = kEight; c < whole; c += kEight)
      total = Op::of(total, load_eight(row + c));
    if constexpr (kIsSum<Op>) {
      T rest[kEight] = {};
      for (int64_t c = whole; c < columns; ++c)
        rest[c - whole] = row[c];
      total = Op::of(total, load_eight(rest));
    } else {
      total = Op::of(total, load_eight(row + columns - kEight));  // some of them twice
    }
    out[r] = reduce_eight<Op, T>(total);
  }
}

template <class Op, class T>
void reduce_short_rows(T* out, const T* x, int64_t rows, int64_t columns, int64_t row_stride) {
  switch (columns) {
    case 2:
      return reduce_short_rows<Op, T, 2>(out, x, rows, row_stride);
    case 3:
      return reduce_short_rows<Op, T, 3>(out, x, rows, row_stride);
    case 4:
      return reduce_short_rows<Op, T, 4>(out, x, rows, row_stride);
    case 5:
      return reduce_short_rows<Op, T, 5>(out, x, rows, row_stride);
    case 6:
      return reduce_short_rows<Op, T, 6>(out, x, rows, row_stride);
    case 7:
      return reduce_short_rows<Op, T, 7>(out, x, rows, row_stride);
    default:
      return reduce_short_rows<Op, T, 8>(out, x, rows, row_stride);
  }
}

template <class Op, class T>
void reduce_rows(void* out, const void* x, int64_t rows, int64_t columns, int64_t row_stride) {
  using W = typename WorkType<Op, T>::type;
  T* o = static_cast<T*>(out);
  if constexpr (kIsFloat<T>) {
    if (columns > 1 && columns <= kEight) {
      reduce_short_rows<Op, T>(o, static_cast<const T*>(x), rows, columns, row_stride);
      return;
    }
    if (columns > kEight && columns < 4 * kLanes<T> && columns % kLanes<T> != 0) {
      reduce_uneven_rows<Op, T>(o, static_cast<const T*>(x), rows, columns, row_stride);
      return;
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const W* row = static_cast<const W*>(x) + r * row_stride;
    if (columns <= kRowBlock) {
      o[r] = static_cast<T>(reduce_block<Op, W>(row, columns));
    } else if constexpr (kIsSum<Op> && kIsFloat<T>) {
      double total = 0;
      for (int64_t c = 0; c < columns; c += kRowBlock) {
        const int64_t n = columns - c < kRowBlock ? columns - c : kRowBlock;
        total += static_cast<double>(reduce_block<Op, W>(row + c, n));
      }
      o[r] = static_cast<T>(total);
    } else {
      W total = reduce_block<Op, W>(row, kRowBlock);
      for (int64_t c = kRowBlock; c < columns; c += kRowBlock) {
        const int64_t n = columns - c < kRowBlock ? columns - c : kRowBlock;
        total = Op::of(total, reduce_block<Op, W>(row + c, n));
      }
      o[r] = static_cast<T>(total);
    }
  }
}

constexpr int64_t kColumnBlock = 64;  // rows added up before they join the total

// The rows [begin, end) of kVectors vectors of columns, in order.
template <class Op, class T, int kVectors>
inline void add_rows(Vec<T>* out, const T* x, int64_t begin, int64_t end, int64_t row_stride) {
  constexpr int L = kLanes<T>;
  Vec<T> part[kVectors];
  for (int v = 0; v < kVectors; ++v)
    part[v] = load(x + begin * row_stride + v * L);
  for (int64_t r = begin + 1; r < end; ++r) {
    for (int v = 0; v < kVectors; ++v)
      part[v] = Op::of(part[v], load(x + r * row_stride + v * L));
  }
  for (int v = 0; v < kVectors; ++v)
    out[v] = part[v];
}

template <class Op, class T, int kVectors>
void reduce_wide_columns(T* o, const T* x, int64_t rows, int64_t row_stride) {
  Vec<T> total[kVectors];
  add_rows<Op, T, kVectors>(total, x, 0, rows < kColumnBlock ? rows : kColumnBlock, row_stride);
  for (int64_t begin = kColumnBlock; begin < rows; begin += kColumnBlock) {
    const int64_t end = begin + kColumnBlock < rows ? begin + kColumnBlock : rows;
    Vec<T> part[kVectors];
    add_rows<Op, T, kVectors>(part, x, begin, end, row_stride);
    for (int v = 0; v < kVectors; ++v)
      total[v] = Op::of(total[v], part[v]);
  }
  for (int v = 0; v < kVectors; ++v)
    store(o + v * kLanes<T>, total[v]);
}

// Fewer columns than a vector: the same order of rows as above.
template <class Op, class T>
void reduce_few_columns(T* o, const T* x, int64_t rows, int64_t columns, int64_t row_stride) {
  T total[kLanes<T>] = {};
  for (int64_t begin = 0; begin < rows; begin += kColumnBlock) {
    const int64_t end = begin + kColumnBlock < rows ? begin + kColumnBlock : rows;
    T part[kLanes<T>] = {};
    for (int64_t c = 0; c < columns; ++c)
      part[c] = x[begin * row_stride + c];
    for (int64_t r = begin + 1; r < end; ++r) {
      const T* row = x + r * row_stride;
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c)
        part[c] = Op::of(part[c], row[c]);
    }
    for (int64_t c = 0; c < columns; ++c) {
      total[c] = begin == 0 ? part[c] : Op::of(total[c], part[c]);
    }
  }
  for (int64_t c = 0; c < columns; ++c)
    o[c] = total[c];
}

template <class Op, class T>
void reduce_columns(void* out, const void* x, int64_t rows, int64_t columns, int64_t row_stride) {
  using W = typename WorkType<Op, T>::type;
  constexpr int L = kLanes<W>;
  W* o = static_cast<W*>(out);
  const W* in = static_cast<const W*>(x);
  int64_t c = 0;
  for (; c + 4 * L <= columns; c += 4 * L) {
    reduce_wide_columns<Op, W, 4>(o + c, in + c, rows, row_stride);
  }
  for (; c + L <= columns; c += L) {
    reduce_wide_columns<Op, W, 1>(o + c, in + c, rows, row_stride);
  }
  if (c < columns)
    reduce_few_columns<Op, W>(o + c, in + c, rows, columns - c, row_stride);
}

template <class Op, class T>
void combine_many(void* out, const void* const* sources, int64_t num_sources, int64_t n) {
  using W = typename WorkType<Op, T>::type;
  constexpr int L = kLanes<W>;
  W* o = static_cast<W*>(out);
  int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L) {
    Vec<W> total[4];
    for (int v = 0; v < 4; ++v)
      total[v] = load(static_cast<const W*>(sources[0]) + i + v * L);
    for (int64_t s = 1; s < num_sources; ++s) {
      const W* source = static_cast<const W*>(sources[s]) + i;
      for (int v = 0; v < 4; ++v)
        total[v] = Op::of(total[v], load(source + v * L));
    }
    for (int v = 0; v < 4; ++v)
      store(o + i + v * L, total[v]);
  }
  for (; i < n; ++i) {
    W total = static_cast<const W*>(sources[0])[i];
    for (int64_t s = 1; s < num_sources; ++s) {
      total = Op::of(total, static_cast<const W*>(sources[s])[i]);
    }
    o[i] = total;
  }
}

// --- 16 bits: blocks are widened, then reduced as above ------------------------------------------

template <class Op, class H>
void reduce_half_rows(void* out, const void* x, int64_t rows, int64_t columns, int64_t row_stride) {
  float* o = static_cast<float*>(out);
  float block[kRowBlock];
  for (int64_t r = 0; r < rows; ++r) {
    const H* row = static_cast<const H*>(x) + r * row_stride;
    double total = 0;
    for (int64_t c = 0; c < columns; c += kRowBlock) {
      const int64_t n = columns - c < kRowBlock ? columns - c : kRowBlock;
      widen(block, row + c, n);
      const double part = static_cast<double>(reduce_block<Op, float>(block, n));
      total = c == 0 ? part : Op::of(total, part);
    }
    o[r] = static_cast<float>(total);
  }
}

template <class Op, class H>
void reduce_half_columns(void* out, const void* x, int64_t rows, int64_t columns,
                         int64_t row_stride) {
  constexpr int64_t kWide = 64;  // columns at once
  float* o = static_cast<float*>(out);
  const H* in = static_cast<const H*>(x);
  float block[kColumnBlock * kWide], totals[2 * kWide];
  for (int64_t c = 0; c < columns; c += kWide) {
    const int64_t n = columns - c < kWide ? columns - c : kWide;
    for (int64_t r = 0; r < rows; r += kColumnBlock) {
      const int64_t count = rows - r < kColumnBlock ? rows - r : kColumnBlock;
      for (int64_t i = 0; i < count; ++i)
        widen(block + i * kWide, in + (r + i) * row_stride + c, n);
      reduce_columns<Op, float>(totals + (r == 0 ? 0 : kWide), block, count, n, kWide);
      if (r > 0)
        reduce_columns<Op, float>(totals, totals, 2, n, kWide);
    }
    for (int64_t i = 0; i < n; ++i)
      o[c + i] = totals[i];
  }
}

template <class Op, class H>
void combine_halves(void* out, const void* const* sources, int64_t num_sources, int64_t n) {
  float total[kHalfBlock], term[kHalfBlock];
  for (int64_t i = 0; i < n; i += kHalfBlock) {
    const int64_t count = n - i < kHalfBlock ? n - i : kHalfBlock;
    widen(total, static_cast<const H*>(sources[0]) + i, count);
    for (int64_t s = 1; s < num_sources; ++s) {
      widen(term, static_cast<const H*>(sources[s]) + i, count);
      const void* both[] = {total, term};
      combine_many<Op, float>(total, both, 2, count);
    }
    narrow(static_cast<H*>(out) + i, total, count);
  }
}

template <class Op, class H>
void fill_half(KernelTable& table, Reduction kind) {
  const int k = static_cast<int>(kind);
  table.reduce_rows[k][kIndexOf<H>] = reduce_half_rows<Op, H>;
  table.reduce_columns[k][kIndexOf<H>] = reduce_half_columns<Op, H>;
  table.combine_many[k][kIndexOf<H>] = combine_halves<Op, H>;
}

template <class H>
void fill_half_type(KernelTable& table) {
  fill_half<Sum, H>(table, Reduction::kSum);
  fill_half<Max, H>(table, Reduction::kMax);
  fill_half<Min, H>(table, Reduction::kMin);
}

template <class Op, class T>
void fill(KernelTable& table, Reduction kind) {
  const int k = static_cast<int>(kind);
  table.reduce_rows[k][kIndexOf<T>] = reduce_rows<Op, T>;
  table.reduce_columns[k][kIndexOf<T>] = reduce_columns<Op, T>;
  table.combine_many[k][kIndexOf<T>] = combine_many<Op, T>;
}

template <class T>
void fill_type(KernelTable& table) {
  fill<Sum, T>(table, Reduction::kSum);
  fill<Max, T>(table, Reduction::kMax);
  fill<Min, T>(table, Reduction::kMin);
}

}  // namespace

void MESHTRAIN_FILL(fill_reduce)(KernelTable& table) {
  fill_type<uint8_t>(table);
  fill_type<int32_t>(table);
  fill_type<uint32_t>(table);
  fill_type<int64_t>(table);
  fill_type<float>(table);
  fill_type<double>(table);
  fill_half_type<BFloat16>(table);
  fill_half_type<Float16>(table);
  for (int k = 0; k < static_cast<int>(Reduction::kCount); ++k) {
    table.reduce_rows[k][kTypeBool] = table.reduce_rows[k][kTypeU8];
    table.reduce_columns[k][kTypeBool] = table.reduce_columns[k][kTypeU8];
    table.combine_many[k][kTypeBool] = table.combine_many[k][kTypeU8];
  }
}

}  // namespace meshtrain::cpu
