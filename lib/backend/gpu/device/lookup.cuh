// Rows looked up by ids, the sums of rows by ids, and one-hot rows.
//
// Sums have no atomics, so that their order is that of the ids. A block owns a range of rows and of
// columns of the result. It looks through all ids in chunks, keeps those of its rows, sorts them by
// row, and adds up in one go all updates of a chunk that have the same row. The number of blocks is
// bounded, hence also the number of times that an id is looked at.
#pragma once

#include "backend/gpu/device/block_scan.cuh"
#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

// --- rows by ids -------------------------------------------------------------------------------

// Rows [arg 3, arg 3 + rows) of a table of global_rows, each of `words`. Ids are clamped to the
// whole table; rows that other shards hold are zeros. `total` words are made.
struct Gathering {
  long long total, step;
  long long words, rows, global_rows;
};

// Arguments: table, ids, rows, the first row of the table.
template <Gathering G, class X, class Word>
MT_FN void gather_rows(const unsigned long long* arg, unsigned block) {
  using U = typename X::U;
  constexpr U words = G.words;
  const Word* table = (const Word*)arg[0];
  const int* ids = (const int*)arg[1];
  Word* to = (Word*)arg[2];
  for (U i = (U)block * kThreads + threadIdx.x; i < (U)G.total; i += (U)G.step) {
    long long id = ids[i / words];
    id = (id < 0 ? 0 : id >= G.global_rows ? G.global_rows - 1 : id) - (long long)arg[3];
    Word x = {};
    if (id >= 0 && id < G.rows)
      x = table[id * G.words + i % words];
    to[i] = x;
  }
}

// --- sums by ids -------------------------------------------------------------------------------

// A block has `range` rows and `strip` columns, and looks at `chunk` ids together.
struct Scattering {
  long long num_ids, rows, columns;
  long long range, strip;

  MT_FN constexpr long long strips() const { return (columns + strip - 1) / strip; }
};
constexpr int kChunk = 2048;
constexpr unsigned kIdsOfThread = kChunk / kThreads;
constexpr int kReadAhead =
    8;  // updates that are read before the first is added: memory answers late

// In shared memory. keys: of the ids kept, the row from the block's first on, and in the lower half
// the place in the chunk; firsts: the first of each row among the sorted keys.
struct KeptIds {
  unsigned long long keys[kChunk];
  unsigned firsts[kChunk], parts[kThreads];

  MT_FN int row(unsigned i) const { return (int)(keys[i] >> 32); }
  MT_FN int place(unsigned i) const { return (int)(unsigned)keys[i]; }
};

// The part of the result that a block owns.
template <Scattering P>
struct OwnRows {
  long long first_row;
  int num_rows;
  unsigned first_column, num_columns;

  explicit MT_FN OwnRows(unsigned block) {
    constexpr unsigned columns = P.columns, strip = P.strip, strips = P.strips();
    first_row = (long long)(block / strips) * P.range;
    const long long left_rows = P.rows - first_row;
    num_rows = (int)(left_rows < P.range ? left_rows : P.range);
    first_column = block % strips * strip;
    const unsigned left_columns = columns - first_column;
    num_columns = left_columns < strip ? left_columns : strip;
  }
  // Calls visit(element) for those of this thread.
  template <class Visit>
  MT_FN void each(const Visit& visit) const {
    for (unsigned i = threadIdx.x; i < num_rows * num_columns; i += kThreads)
      visit((first_row + i / num_columns) * P.columns + first_column + i % num_columns);
  }
};

// Keeps those of the `count` ids of a chunk that are of these rows; returns how many.
template <Scattering P>
MT_FN unsigned keep_ids(KeptIds& kept, const OwnRows<P>& own, const int* ids, long long start,
                        int count) {
  const int begin = (int)(threadIdx.x * kIdsOfThread);
  const int end = begin + (int)kIdsOfThread < count ? begin + (int)kIdsOfThread : count;
  unsigned found = 0, all;
  for (int i = begin; i < end; ++i) {
    const long long row = ids[i] - start - own.first_row;
    found += row >= 0 && row < own.num_rows;
  }
  unsigned at = block_scan(found, all, kept.parts);
  if (all == 0)
    return 0;
  for (int i = begin; i < end; ++i) {
    const long long row = ids[i] - start - own.first_row;
    if (row >= 0 && row < own.num_rows)
      kept.keys[at++] = (unsigned long long)row << 32 | (unsigned)i;
  }
  __syncthreads();
  return all;
}

// Sorts the keys, by a bitonic network (Batcher, 1968).
MT_FN void sort_ids(KeptIds& kept, unsigned all) {
  unsigned size = 1;
  while (size < all)
    size *= 2;
  for (unsigned i = all + threadIdx.x; i < size; i += kThreads)
    kept.keys[i] = ~0ull;
  __syncthreads();
  for (unsigned sorted = 2; sorted <= size; sorted *= 2) {
    for (unsigned step = sorted / 2; step > 0; step /= 2) {
      for (unsigned pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const unsigned i = pair / step * 2 * step + pair % step;
        const unsigned long long a = kept.keys[i], b = kept.keys[i + step];
        if ((a > b) == ((i & sorted) == 0)) {
          kept.keys[i] = b;
          kept.keys[i + step] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Finds the first of each row among `all` sorted keys; returns their number.
MT_FN unsigned find_firsts(KeptIds& kept, unsigned all) {
  const unsigned from = threadIdx.x * kIdsOfThread;
  const unsigned to = from + kIdsOfThread < all ? from + kIdsOfThread : all;
  unsigned is_first = 0, count = 0, num_firsts;
  for (unsigned i = from; i < to; ++i) {
    if (i == 0 || kept.row(i) != kept.row(i - 1)) {
      is_first |= 1u << (i - from);
      ++count;
    }
  }
  unsigned at = block_scan(count, num_firsts, kept.parts);
  for (unsigned i = from; i < to; ++i) {
    if ((is_first >> (i - from) & 1u) != 0)
      kept.firsts[at++] = i;
  }
  __syncthreads();
  return num_firsts;
}

// sums[row] += the chunk's updates of the row, in their order. T: of updates, S: of sums.
template <Scattering P, class T, class S>
MT_FN void add_rows(const KeptIds& kept, const OwnRows<P>& own, const T* updates, S* sums,
                    unsigned all, unsigned num_firsts) {
  for (unsigned k = threadIdx.x; k < num_firsts * own.num_columns; k += kThreads) {
    const unsigned number = k / own.num_columns, first = kept.firsts[number];
    const unsigned end = number + 1 < num_firsts ? kept.firsts[number + 1] : all;
    const unsigned column = own.first_column + k % own.num_columns;
    S* place = sums + (own.first_row + kept.row(first)) * P.columns + column;
    Compute<S> sum = load(place);
    for (unsigned i = first; i < end; i += kReadAhead) {
      Compute<T> x[kReadAhead];
#pragma unroll
      for (unsigned e = 0; e < kReadAhead; ++e)
        x[e] = i + e < end ? load(updates + (long long)kept.place(i + e) * P.columns + column)
                           : Compute<T>(0);
#pragma unroll
      for (unsigned e = 0; e < kReadAhead; ++e) {
        if (i + e < end)
          sum = add(sum, (Compute<S>)x[e]);
      }
    }
    store(place, sum);
  }
}

// Sums are kept in the result between chunks, or as float32 in memory of their own where 16 bits
// would lose digits (has_sums). Arguments: updates, ids, the first row, the result, and these sums.
// `shared`: a KeptIds.
template <Scattering P, class T, bool has_sums>
MT_FN void scatter_add_rows(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using S = typename Either<has_sums, float, T>::type;
  KeptIds& kept = *(KeptIds*)shared;
  S* sums = (S*)arg[has_sums ? 4 : 3];
  const OwnRows<P> own(block);
  own.each([&](long long element) { store(sums + element, Compute<S>(0)); });
  for (long long chunk = 0; chunk < P.num_ids; chunk += kChunk) {
    const int count = P.num_ids - chunk < kChunk ? (int)(P.num_ids - chunk) : kChunk;
    const unsigned all = keep_ids(kept, own, (const int*)arg[1] + chunk, (long long)arg[2], count);
    if (all == 0)
      continue;
    sort_ids(kept, all);
    const unsigned num_firsts = find_firsts(kept, all);
    add_rows(kept, own, (const T*)arg[0] + chunk * P.columns, sums, all, num_firsts);
    __syncthreads();
  }
  if constexpr (has_sums)
    own.each([&](long long element) { store((T*)arg[3] + element, load(sums + element)); });
}

// --- one-hot rows ------------------------------------------------------------------------------

// `total` accesses of `pack` elements make rows of `size`. Arguments: ids, rows, the id of the
// first column.
template <long long total, long long step, long long size, int pack, class X, class T>
MT_FN void one_hot(const unsigned long long* arg, unsigned block) {
  using U = typename X::U;
  constexpr U of_row = size / pack;
  const int* ids = (const int*)arg[0];
  T* to = (T*)arg[1];
  for (U i = (U)block * kThreads + threadIdx.x; i < (U)total; i += (U)step) {
    const long long id = (long long)ids[i / of_row] - (long long)arg[2];
    const long long first = (long long)(i % of_row) * pack;
    Pack<T, pack> x;
#pragma unroll
    for (int e = 0; e < pack; ++e)
      x.v[e] = put<T>((Compute<T>)(id == first + e ? 1 : 0));
    *(Pack<T, pack>*)(to + (unsigned long long)i * pack) = x;
  }
}

}  // namespace
}  // namespace mt
