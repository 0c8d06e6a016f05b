// Recurrent cells over all steps, a block of batch items at a time. The recurrent kernel is packed
// once and stays in the cache from step to step; gates are computed row by row.
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
          b.gates != nullptr};
}

// How the recurrent kernel is packed: all columns together, or gate by gate where gates have
// operands of their own.
template <class T>
struct KernelPacks {
  int64_t units, columns, parts;  // columns of a part

  explicit KernelPacks(const mt::RnnSizes& n)
      : units(n.units),
        columns(n.has_drop || n.cell == mt::RnnCell::kGru ? n.units : n.columns()),
        parts(n.columns() / (columns > 0 ? columns : 1)) {}

  static int64_t whole(int64_t n) {
    return (n + kTileColumns<T> - 1) / kTileColumns<T> * kTileColumns<T>;
  }
  int64_t part_size() const { return units * whole(columns); }        // R
  int64_t transposed_size() const { return columns * whole(units); }  // its transpose
};

constexpr int64_t whole(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Elements of scratch: those of rnn.h, packed rows, R or its transpose, each from a cache line on.
template <class T>
struct BlockScratch {
  int64_t state, rows, kernel;

  BlockScratch(const mt::RnnSizes& n, int64_t count, bool is_gradient)
      : state(whole(count * n.scratch(), 16)),
        rows(whole(whole(count, kTileRows) * n.columns(), 16)) {
    const KernelPacks<T> packs(n);
    kernel = packs.parts * (is_gradient ? packs.transposed_size() : packs.part_size());
  }
  int64_t elements() const { return state + rows + kernel; }
};

// Rows `first` to `first + count` (mt::rnn_forward).
template <class T>
struct BlockRows {
  const RnnBlock& b;
  int64_t columns, extra_columns, gate_columns;
  KernelPacks<T> packs;
  T *packed_rows, *packed_kernel;  // of the gradient: of the transpose
  int64_t count;

  BlockRows(const RnnBlock& block, const mt::RnnSizes& n, T* scratch, bool is_gradient,
            const BlockScratch<T>& sizes)
      : b(block),
        columns(n.columns()),
        extra_columns(n.extra_columns()),
        gate_columns(n.gate_columns()),
        packs(n),
        packed_rows(scratch + sizes.state),
        packed_kernel(packed_rows + sizes.rows),
        count(block.count) {
    const T* kernel = static_cast<const T*>(b.kernel);
    for (int64_t i = 0; i < packs.parts; ++i) {
      const T* part = kernel + i * packs.columns;
      if (is_gradient)
        pack_b(part, 1, columns, packs.columns, b.units,
               packed_kernel + i * packs.transposed_size());
      else
        pack_b(part, columns, 1, b.units, packs.columns, packed_kernel + i * packs.part_size());
    }
  }

  int64_t at(int64_t row, int64_t t, int64_t size) const {
    return ((b.first + row) * b.steps + t) * size;
  }
  static T get(const void* data, int64_t i) { return static_cast<const T*>(data)[i]; }
  static void set(void* data, int64_t i, T v) { static_cast<T*>(data)[i] = v; }

  T x(int64_t row, int64_t t, int64_t j) const { return get(b.x, at(row, t, columns) + j); }
  T h0(int64_t row, int64_t j) const { return get(b.h0, (b.first + row) * b.units + j); }
  T c0(int64_t row, int64_t j) const { return get(b.c0, (b.first + row) * b.units + j); }
  T bias(int64_t j) const { return get(b.bias, j); }
  T drop(int64_t row, int64_t j) const { return get(b.drop, (b.first + row) * columns + j); }
  bool valid(int64_t row, int64_t t) const {
    return b.mask == nullptr || b.mask[at(row, t, 1)] != 0;
  }
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
  void set_dh0(int64_t row, int64_t j, T v) const { set(b.dh0, (b.first + row) * b.units + j, v); }
  void set_dc0(int64_t row, int64_t j, T v) const { set(b.dc0, (b.first + row) * b.units + j, v); }

  // q[:, begin..] = in R[:, begin..begin + size).
  void product(T* q, const T* in, int64_t begin, int64_t size) const {
    pack_a(in, b.units, 1, count, b.units, packed_rows);
    for (int64_t j = begin; j < begin + size; j += packs.columns)
      multiply_block<T>(packed_rows, packed_kernel + j / packs.columns * packs.part_size(), q + j,
                        columns, count, packs.columns, b.units, false);
  }
  // out += q[:, begin..begin + size) times the transpose of those columns of R.
  void add_transposed(T* out, const T* q, int64_t begin, int64_t size) const {
    for (int64_t j = begin; j < begin + size; j += packs.columns) {
      pack_a(q + j, columns, 1, count, packs.columns, packed_rows);
      multiply_block<T>(packed_rows, packed_kernel + j / packs.columns * packs.transposed_size(),
                        out, b.units, count, b.units, packs.columns, true);
    }
  }
};

template <class T, bool is_gradient, class Sizes>
void run_block(const RnnBlock& block, const Sizes& n, T* scratch) {
  const BlockRows<T> rows(block, n, scratch, is_gradient,
                          BlockScratch<T>(n, block.count, is_gradient));
  const mt::RnnScratch<T> at(scratch, block.count, n);
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
