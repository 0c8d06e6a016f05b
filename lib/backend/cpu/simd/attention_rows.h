// What attention makes of rows of scores: masks, and the softmax with running maxima and sums.
// For sources that are compiled with -ffp-contract=fast.
#pragma once

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

}  // namespace
}  // namespace meshtrain::cpu
