// Recurrent cells over all steps, a block of batch items at a time, or a batch item with images:
// its rows are pixels, and the products are of what the window sees of the states at each of them.
// The recurrent kernel is packed once and stays in the cache from step to step; gates are computed
// row by row.
#include "backend/formulas/rnn.h"

#include "backend/cpu/rnn_loops.h"
#include "backend/cpu/simd/tile.h"

namespace meshtrain::cpu {
namespace {

// Sizes with Keras' activations: loops over units have no branches.
template <mt::RnnCell kCell, bool kKeepsGates>
struct KerasSizes : mt::RnnSizes {
  static constexpr bool keeps_gates = kKeepsGates;
  static constexpr mt::RnnCell cell = kCell;
  static constexpr mt::RnnActivation activation = mt::RnnActivation::kTanh;
  static constexpr mt::RnnActivation recurrent = mt::RnnActivation::kSigmoid;

  constexpr long long columns() const { return mt::rnn_gates(kCell) * units; }
};

mt::RnnSizes sizes_of(const RnnBlock& b) {
  return {static_cast<mt::RnnCell>(b.cell),
          static_cast<mt::RnnActivation>(b.activation),
          static_cast<mt::RnnActivation>(b.recurrent),
          b.batch,
          b.steps,
          b.units,
          b.mask != nullptr,
          b.drop != nullptr,
          b.gates != nullptr,
          {b.space[0], b.space[1], b.space[2]},
          {b.window[0], b.window[1], b.window[2]}};
}

constexpr int64_t kProductRows = 48;  // of a product, a multiple of every kTileRows

constexpr int64_t whole(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// How the recurrent kernel (depth, columns) is packed: all columns together, or gate by gate where
// gates have operands of their own; of the gradient transposed.
template <class T>
struct KernelPacks {
  int64_t depth, columns, parts;  // columns of a part
  int64_t part_size;              // elements

  KernelPacks(const mt::RnnSizes& n, bool is_gradient)
      : depth(n.taps() * n.units),
        columns(n.has_drop || n.cell == mt::RnnCell::kGru ? n.units : n.columns()),
        parts(n.columns() / (columns > 0 ? columns : 1)),
        part_size(is_gradient ? columns * whole(depth, kTileColumns<T>)
                              : depth * whole(columns, kTileColumns<T>)) {}
};

// Scratch in elements: that of rnn.h, packed rows of a product, what the window sees at them, and
// the packed kernel, each from a cache line on.
template <class T>
struct BlockScratch {
  int64_t state, rows, seen, kernel;

  BlockScratch(const mt::RnnSizes& n, int64_t items, bool is_gradient)
      : state(whole(items * n.pixels() * n.scratch(), 16)), seen(0) {
    const KernelPacks<T> packs(n, is_gradient);
    const int64_t terms = packs.depth > n.columns() ? packs.depth : n.columns();
    rows = kProductRows * whole(terms, 16);
    if (n.taps() > 1)
      seen = kProductRows * whole(packs.depth, 16);
    kernel = packs.parts * packs.part_size;
  }
  int64_t elements() const { return state + rows + seen + kernel; }
};

// `count` rows: batch items, or the pixels of one (mt::rnn_forward).
template <class T>
struct BlockRows {
  const RnnBlock& b;
  const mt::RnnSizes& n;
  int64_t columns, extra_columns, gate_columns;
  // Of one column: row 0 of all arrays over steps, from row to row, from step to step; of the mask.
  int64_t first, row_stride, step_stride, mask_stride;
  KernelPacks<T> packs;
  T *packed_rows, *seen, *packed_kernel;
  int64_t count;

  BlockRows(const RnnBlock& block, const mt::RnnSizes& sizes, T* scratch, bool is_gradient)
      : b(block),
        n(sizes),
        columns(n.columns()),
        extra_columns(n.extra_columns()),
        gate_columns(n.gate_columns()),
        first(b.first * b.steps * n.pixels()),
        row_stride(has_images() ? 1 : b.steps),
        step_stride(n.pixels()),
        mask_stride(has_images() ? 0 : b.steps),
        packs(n, is_gradient),
        count(b.count * n.pixels()) {
    const BlockScratch<T> parts(n, b.count, is_gradient);
    packed_rows = scratch + parts.state;
    seen = packed_rows + parts.rows;
    packed_kernel = seen + parts.seen;
    for (int64_t i = 0; i < packs.parts; ++i) {
      const T* part = static_cast<const T*>(b.kernel) + i * packs.columns;
      T* const out = packed_kernel + i * packs.part_size;
      if (is_gradient)
        pack_b(part, 1, columns, packs.columns, packs.depth, out);
      else
        pack_b(part, columns, 1, packs.depth, packs.columns, out);
    }
  }

  bool has_images() const { return n.pixels() > 1 || n.taps() > 1; }

  // --- elements of arrays ---

  int64_t at(int64_t row, int64_t t, int64_t size) const {
    return (first + row * row_stride + t * step_stride) * size;
  }
  int64_t state(int64_t row, int64_t size) const { return (b.first * n.pixels() + row) * size; }
  static T get(const void* data, int64_t i) { return static_cast<const T*>(data)[i]; }
  static void set(void* data, int64_t i, T v) { static_cast<T*>(data)[i] = v; }

  T x(int64_t row, int64_t t, int64_t j) const { return get(b.x, at(row, t, columns) + j); }
  T h0(int64_t row, int64_t j) const { return get(b.h0, state(row, b.units) + j); }
  T c0(int64_t row, int64_t j) const { return get(b.c0, state(row, b.units) + j); }
  T bias(int64_t j) const { return get(b.bias, j); }
  T drop(int64_t row, int64_t j) const { return get(b.drop, state(row, columns) + j); }
  T h(int64_t row, int64_t t, int64_t j) const { return get(b.h, at(row, t, b.units) + j); }
  T c(int64_t row, int64_t t, int64_t j) const { return get(b.c, at(row, t, b.units) + j); }
  T dh(int64_t row, int64_t t, int64_t j) const { return get(b.dh, at(row, t, b.units) + j); }
  T dc(int64_t row, int64_t t, int64_t j) const { return get(b.dc, at(row, t, b.units) + j); }
  void set_h(int64_t row, int64_t t, int64_t j, T v) const { set(b.h, at(row, t, b.units) + j, v); }
  void set_c(int64_t row, int64_t t, int64_t j, T v) const { set(b.c, at(row, t, b.units) + j, v); }
  T gate(int64_t row, int64_t t, int64_t j) const {
    return get(b.gates, at(row, t, gate_columns) + j);
  }
  void set_gate(int64_t row, int64_t t, int64_t j, T v) const {
    set(b.gates, at(row, t, gate_columns) + j, v);
  }
  void set_dx(int64_t row, int64_t t, int64_t j, T v) const {
    set(b.dx, at(row, t, columns) + j, v);
  }
  void set_extra(int64_t row, int64_t t, int64_t j, T v) const {
    set(b.extra, at(row, t, extra_columns) + j, v);
  }
  void set_dh0(int64_t row, int64_t j, T v) const { set(b.dh0, state(row, b.units) + j, v); }
  void set_dc0(int64_t row, int64_t j, T v) const { set(b.dc0, state(row, b.units) + j, v); }

  // --- units of rows ---

  // Flat: what it calls becomes part of the loop, which becomes one over vectors.
  template <class F>
  __attribute__((flatten)) void each_unit(int64_t row, const F& f) const {
#pragma omp simd
    for (int64_t j = 0; j < b.units; ++j)
      f(row, j);
  }
  template <class F>
  void each(const F& f) const {
    for (int64_t row = 0; row < count; ++row)
      each_unit(row, f);
  }
  template <class Valid, class Other>
  void each_of(int64_t t, const Valid& valid, const Other& other) const {
    for (int64_t row = 0; row < count; ++row) {
      if (b.mask == nullptr || b.mask[b.first * b.steps + row * mask_stride + t] != 0)
        each_unit(row, valid);
      else
        each_unit(row, other);
    }
  }

  // --- products ---

  // f(pixel, the units that a tap of the window sees at a row) of `rows` rows; pixel below 0:
  // padding.
  template <class F>
  void taps(int64_t begin, int64_t rows, const F& f) const {
    T* units = seen;
    for (int64_t row = begin; row < begin + rows; ++row) {
      for (int64_t tap = 0; tap < n.taps(); ++tap, units += b.units)
        f(n.neighbour(row, tap, 1), units);
    }
  }
  // What the window sees of `states` at rows from `row` on, (rows, depth).
  const T* seen_states(const T* states, int64_t row, int64_t rows) const {
    if (n.taps() == 1)
      return states + row * b.units;
    taps(row, rows, [&](int64_t pixel, T* units) {
      for (int64_t j = 0; j < b.units; ++j)
        units[j] = pixel < 0 ? T(0) : states[pixel * b.units + j];
    });
    return seen;
  }
  // q[:, begin..] = in R[:, begin..begin + size).
  void product(T* q, const T* in, int64_t begin, int64_t size) const {
    for (int64_t row = 0; row < count; row += kProductRows) {
      const int64_t rows = count - row < kProductRows ? count - row : kProductRows;
      pack_a(seen_states(in, row, rows), packs.depth, 1, rows, packs.depth, packed_rows);
      for (int64_t j = begin; j < begin + size; j += packs.columns)
        multiply_block<T>(packed_rows, packed_kernel + j / packs.columns * packs.part_size,
                          q + row * columns + j, columns, rows, packs.columns, packs.depth, false);
    }
  }
  // out += q[:, begin..begin + size) times the transpose of those columns of R.
  void add_transposed(T* out, const T* q, int64_t begin, int64_t size) const {
    for (int64_t row = 0; row < count; row += kProductRows) {
      const int64_t rows = count - row < kProductRows ? count - row : kProductRows;
      const bool is_whole = n.taps() == 1;
      for (int64_t j = begin; j < begin + size; j += packs.columns) {
        pack_a(q + row * columns + j, columns, 1, rows, packs.columns, packed_rows);
        multiply_block<T>(packed_rows, packed_kernel + j / packs.columns * packs.part_size,
                          is_whole ? out + row * b.units : seen, packs.depth, rows, packs.depth,
                          packs.columns, is_whole || j > begin);
      }
      if (!is_whole)
        taps(row, rows, [&](int64_t pixel, const T* units) {
          for (int64_t j = 0; pixel >= 0 && j < b.units; ++j)
            out[pixel * b.units + j] += units[j];
        });
    }
  }
};

template <class T, bool is_gradient, class Sizes>
void run_block(const RnnBlock& block, const Sizes& n, T* scratch) {
  const BlockRows<T> rows(block, n, scratch, is_gradient);
  const mt::RnnScratch<T> at(scratch, rows.count, n);
  if constexpr (is_gradient)
    mt::rnn_gradient<T>(n, rows, at);
  else
    mt::rnn_forward<T>(n, rows, at);
}

template <class T, bool is_gradient, mt::RnnCell kCell>
void run_keras(const RnnBlock& block, const mt::RnnSizes& n, T* scratch) {
  if (is_gradient || n.keeps_gates)
    run_block<T, is_gradient>(block, KerasSizes<kCell, true>{n}, scratch);
  else
    run_block<T, is_gradient>(block, KerasSizes<kCell, false>{n}, scratch);
}

template <class T, bool is_gradient>
void rnn(const RnnBlock& block, void* scratch) {
  using mt::RnnCell;
  const mt::RnnSizes n = sizes_of(block);
  T* const memory = static_cast<T*>(scratch);
  if (n.activation != mt::RnnActivation::kTanh || n.recurrent != mt::RnnActivation::kSigmoid)
    run_block<T, is_gradient>(block, n, memory);
  else if (n.cell == RnnCell::kSimple)
    run_keras<T, is_gradient, RnnCell::kSimple>(block, n, memory);
  else if (n.cell == RnnCell::kLstm)
    run_keras<T, is_gradient, RnnCell::kLstm>(block, n, memory);
  else if (n.cell == RnnCell::kGru)
    run_keras<T, is_gradient, RnnCell::kGru>(block, n, memory);
  else
    run_keras<T, is_gradient, RnnCell::kGruResetAfter>(block, n, memory);
}

template <class T>
size_t scratch_bytes(const RnnBlock& block, bool is_gradient) {
  return static_cast<size_t>(
             BlockScratch<T>(sizes_of(block), block.count, is_gradient).elements()) *
         sizeof(T);
}

template <class T>
void fill(RnnLoops& loops) {
  loops.forward[kIndexOf<T>] = rnn<T, false>;
  loops.gradient[kIndexOf<T>] = rnn<T, true>;
  loops.scratch_bytes[kIndexOf<T>] = scratch_bytes<T>;
}

}  // namespace

void MESHTRAIN_FILL(fill_rnn)(RnnLoops& loops);
void MESHTRAIN_FILL(fill_rnn)(RnnLoops& loops) {
  fill<float>(loops);
  fill<double>(loops);
}

}  // namespace meshtrain::cpu
