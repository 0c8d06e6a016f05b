// Recurrent cells over all steps, and their gradient (formulas: ir/ops/rnn.cc). A unit is a block
// of batch items, or a batch item with pixels. Their products with the recurrent kernel are matrix
// products of some rows; with pixels, of what the window sees of the states at each of them.
#include "backend/formulas/rnn.h"

#include <algorithm>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/lowering.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kBlockRows = 32;
constexpr double kFlopsRate = 40;           // a nanosecond
constexpr double kNanosecondsOfColumn = 6;  // an activation

static_assert(static_cast<int>(mt::RnnCell::kGruResetAfter) ==
                  static_cast<int>(RnnCell::kGruResetAfter) &&
              static_cast<int>(mt::RnnActivation::kHardTanh) ==
                  static_cast<int>(RnnActivation::kHardTanh));

// `count` rows: batch items from `first` on, or the pixels of batch item `first` (mt::rnn_forward).
template <class T>
struct RnnRows {
  const mt::RnnSizes& n;
  const RnnArrays& a;
  int64_t first, count;
  T* seen;  // (kBlockRows, taps, units)
  void* gemm_scratch;

  static const T* read(const std::byte* data) { return reinterpret_cast<const T*>(data); }
  static T* write(std::byte* data) { return reinterpret_cast<T*>(data); }
  bool has_pixels() const { return n.pixels() > 1; }
  int64_t at(int64_t row, int64_t t, int64_t j, int64_t size) const {
    return (first * n.steps * n.pixels() + t * n.pixels() + row * (has_pixels() ? 1 : n.steps)) *
               size +
           j;
  }
  int64_t state(int64_t row, int64_t j, int64_t size) const {
    return (first * n.pixels() + row) * size + j;
  }

  T x(int64_t row, int64_t t, int64_t j) const { return read(a.x)[at(row, t, j, n.columns())]; }
  T h0(int64_t row, int64_t j) const { return read(a.h0)[state(row, j, n.units)]; }
  T c0(int64_t row, int64_t j) const { return read(a.c0)[state(row, j, n.units)]; }
  T bias(int64_t j) const { return read(a.bias)[j]; }
  T drop(int64_t row, int64_t j) const { return read(a.drop)[state(row, j, n.columns())]; }
  bool valid(int64_t row, int64_t t) const {
    const int64_t item = has_pixels() ? first : first + row;
    return a.mask == nullptr || a.mask[item * n.steps + t] != std::byte{0};
  }
  T h(int64_t row, int64_t t, int64_t j) const { return read(a.h)[at(row, t, j, n.units)]; }
  T c(int64_t row, int64_t t, int64_t j) const { return read(a.c)[at(row, t, j, n.units)]; }
  T dh(int64_t row, int64_t t, int64_t j) const { return read(a.dh)[at(row, t, j, n.units)]; }
  T dc(int64_t row, int64_t t, int64_t j) const { return read(a.dc)[at(row, t, j, n.units)]; }
  void set_h(int64_t row, int64_t t, int64_t j, T v) const {
    write(a.h)[at(row, t, j, n.units)] = v;
  }
  void set_c(int64_t row, int64_t t, int64_t j, T v) const {
    write(a.c)[at(row, t, j, n.units)] = v;
  }
  void set_dx(int64_t row, int64_t t, int64_t j, T v) const {
    write(a.dx)[at(row, t, j, n.columns())] = v;
  }
  void set_extra(int64_t row, int64_t t, int64_t j, T v) const {
    write(a.extra)[at(row, t, j, n.cell == mt::RnnCell::kGru ? n.units : n.columns())] = v;
  }
  void set_dh0(int64_t row, int64_t j, T v) const { write(a.dh0)[state(row, j, n.units)] = v; }
  void set_dc0(int64_t row, int64_t j, T v) const { write(a.dc0)[state(row, j, n.units)] = v; }

  template <class F>
  void each(const F& f) const {
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t j = 0; j < n.units; ++j)
        f(row, j);
    }
  }

  void multiply(const GemmArgs& args) const {
    kernels().gemm[type_index(sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64)](args,
                                                                                   gemm_scratch);
  }
  int64_t depth() const { return n.taps() * n.units; }
  // f(first row, rows) of blocks of rows.
  template <class F>
  void blocks(const F& f) const {
    for (int64_t row = 0; row < count; row += kBlockRows)
      f(row, std::min(kBlockRows, count - row));
  }
  // f(pixel, the units that a tap of the window sees at `row`); pixel below 0: padding.
  template <class F>
  void taps(int64_t begin, int64_t rows, const F& f) const {
    T* units = seen;
    for (int64_t row = begin; row < begin + rows; ++row) {
      for (int64_t tap = 0; tap < n.taps(); ++tap, units += n.units)
        f(n.neighbour(row, tap, 1), units);
    }
  }
  // q[:, begin..] = in R[:, begin..begin + columns).
  void product(T* q, const T* in, int64_t begin, int64_t columns) const {
    const int64_t all = n.columns();
    blocks([&](int64_t row, int64_t rows) {
      const T* states = in + row * n.units;
      if (n.taps() > 1) {
        taps(row, rows, [&](int64_t pixel, T* units) {
          if (pixel < 0)
            std::fill_n(units, n.units, T(0));
          else
            std::copy_n(in + pixel * n.units, n.units, units);
        });
        states = seen;
      }
      multiply({states, read(a.kernel) + begin, q + row * all + begin, rows, columns, depth(),
                depth(), 1, all, 1, all});
    });
  }
  // out += q[:, begin..begin + columns) times the transpose of those columns of R.
  void add_transposed(T* out, const T* q, int64_t begin, int64_t columns) const {
    const int64_t all = n.columns();
    blocks([&](int64_t row, int64_t rows) {
      multiply({q + row * all + begin, read(a.kernel) + begin, seen, rows, depth(), columns, all, 1,
                1, all, depth()});
      taps(row, rows, [&](int64_t pixel, const T* units) {
        for (int64_t i = 0; pixel >= 0 && i < n.units; ++i)
          out[pixel * n.units + i] += units[i];
      });
    });
  }
};

template <class T>
class ScanRnn final : public Kernel {
 public:
  ScanRnn(const RnnShape& shape, bool is_gradient, const RnnArrays& arrays)
      : is_gradient_(is_gradient),
        sizes_{static_cast<mt::RnnCell>(shape.cell),
               static_cast<mt::RnnActivation>(shape.activation),
               static_cast<mt::RnnActivation>(shape.recurrent),
               shape.batch,
               shape.steps,
               shape.units,
               arrays.mask != nullptr,
               arrays.drop != nullptr,
               {shape.space[0], shape.space[1], shape.space[2]},
               {shape.window[0], shape.window[1], shape.window[2]}},
        arrays_(arrays) {}

  int64_t units() const override { return (sizes_.batch + items() - 1) / items(); }
  double cost() const override {
    const auto elements =
        static_cast<double>(sizes_.batch * sizes_.steps * sizes_.pixels() * sizes_.columns());
    const auto terms = static_cast<double>(sizes_.taps() * sizes_.units);
    const double products = is_gradient_ ? 2 : 1;
    return elements * (2 * products * terms / kFlopsRate + kNanosecondsOfColumn);
  }
  size_t scratch_bytes() const override { return rows_bytes() + kernels().gemm_scratch_bytes; }

  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit * items();
      const int64_t count = std::min<int64_t>(items(), sizes_.batch - first) * sizes_.pixels();
      T* memory = reinterpret_cast<T*>(scratch);
      const mt::RnnScratch<T> at(memory, count, sizes_);
      const RnnRows<T> rows{
          sizes_, arrays_, first, count, memory + count * sizes_.scratch(), scratch + rows_bytes()};
      if (is_gradient_)
        mt::rnn_gradient<T>(sizes_, rows, at);
      else
        mt::rnn_forward<T>(sizes_, rows, at);
    }
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = begin * items(), last = std::min<int64_t>(end * items(), sizes_.batch);
    const int64_t steps = sizes_.steps, pixels = sizes_.pixels();
    const int64_t u = pixels * sizes_.units, columns = pixels * sizes_.columns();
    const auto range = [&](const std::byte* data, int64_t from, int64_t to, int64_t bytes,
                           bool is_write) {
      if (data != nullptr)
        out.push_back({data + from * bytes, data + to * bytes, is_write});
    };
    constexpr int64_t item = sizeof(T);
    range(arrays_.kernel, 0, sizes_.taps() * sizes_.units * sizes_.columns(), item, false);
    range(arrays_.bias, 0, sizes_.columns(), item, false);
    range(arrays_.mask, first, last, steps, false);
    range(arrays_.drop, first, last, columns * item, false);
    range(arrays_.x, first, last, steps * columns * item, false);
    for (const std::byte* state : {arrays_.h0, arrays_.c0})
      range(state, first, last, u * item, false);
    for (const std::byte* sequence : {arrays_.h, arrays_.c})
      range(sequence, first, last, steps * u * item, !is_gradient_);
    for (const std::byte* sequence : {arrays_.dh, arrays_.dc})
      range(sequence, first, last, steps * u * item, false);
    range(arrays_.dx, first, last, steps * columns * item, true);
    range(arrays_.extra, first, last,
          steps * (sizes_.cell == mt::RnnCell::kGru ? u : columns) * item, true);
    for (const std::byte* state : {arrays_.dh0, arrays_.dc0})
      range(state, first, last, u * item, true);
  }

 private:
  // Batch items of a unit.
  int64_t items() const { return sizes_.pixels() > 1 ? 1 : kBlockRows; }
  size_t rows_bytes() const {
    const int64_t elements =
        items() * sizes_.pixels() * sizes_.scratch() + kBlockRows * sizes_.taps() * sizes_.units;
    return static_cast<size_t>((elements * int64_t{sizeof(T)} + 63) / 64 * 64);
  }

  bool is_gradient_;
  mt::RnnSizes sizes_;
  RnnArrays arrays_;
};

}  // namespace

void CpuLowering::make(const ScanRnnSpec& spec) {
  const DType dtype = spec.shape.dtype;
  const RnnShape shape = computed(spec.shape);
  const int64_t states = shape.state_elements(), sequence = states * shape.steps;
  const int64_t drops = shape.batch * shape.pixels() * shape.columns();
  const int64_t products = drops * shape.steps;
  const auto reads = [&](const std::byte*& data, int64_t elements) {
    data = data == nullptr ? nullptr : read(dtype, data, elements);
  };
  const auto writes = [&](std::byte*& data, int64_t elements) {
    data = data == nullptr ? nullptr : written(dtype, data, elements);
  };
  RnnArrays a = spec.arrays;
  reads(a.x, products);
  reads(a.kernel, shape.kernel_elements());
  reads(a.h0, states);
  reads(a.c0, states);
  reads(a.bias, shape.columns());
  reads(a.drop, drops);
  reads(a.dh, sequence);
  reads(a.dc, sequence);
  for (std::byte** result : {&a.h, &a.c}) {
    if (*result != nullptr)
      *result =
          spec.is_gradient ? read(dtype, *result, sequence) : written(dtype, *result, sequence);
  }
  writes(a.dx, products);
  writes(a.dh0, states);
  writes(a.dc0, states);
  writes(a.extra, shape.cell == RnnCell::kGru ? sequence : products);
  if (shape.dtype == DType::kFloat64) {
    add(std::make_unique<ScanRnn<double>>(shape, spec.is_gradient, a));
    return;
  }
  MESHTRAIN_CHECK(shape.dtype == DType::kFloat32, "{}", dtype_name(shape.dtype));
  add(std::make_unique<ScanRnn<float>>(shape, spec.is_gradient, a));
}

}  // namespace meshtrain::cpu
