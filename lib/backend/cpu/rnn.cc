// Recurrent cells over all steps, and their gradient, through the loops of simd/rnn.cc. A unit is a
// block of batch items, whose products with the recurrent kernel are one matrix product a step, or
// one batch item with images.
#include "backend/formulas/rnn.h"

#include <algorithm>

#include "backend/cpu/lowering.h"
#include "backend/cpu/rnn_loops.h"
#include "backend/cpu/types.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kBlockRows = 32;
constexpr int64_t kFewestRows = 12;           // a tile of AVX-512
constexpr double kFlopsRate = 80;             // a nanosecond
constexpr double kNanosecondsOfColumn = 0.5;  // an activation

static_assert(static_cast<int>(mt::RnnCell::kGruResetAfter) ==
                  static_cast<int>(RnnCell::kGruResetAfter) &&
              static_cast<int>(mt::RnnActivation::kHardTanh) ==
                  static_cast<int>(RnnActivation::kHardTanh));

class ScanRnn final : public Kernel {
 public:
  ScanRnn(const RnnShape& shape, bool is_gradient, const RnnArrays& arrays)
      : shape_(shape),
        is_gradient_(is_gradient),
        arrays_(arrays),
        type_(type_index(shape.dtype)),
        items_(items_of(shape)) {
    MESHTRAIN_CHECK(rnn_loops().forward[type_] != nullptr, "{}", dtype_name(shape.dtype));
  }

  int64_t units() const override { return (shape_.batch + items_ - 1) / items_; }
  double cost() const override {
    const auto rows = static_cast<double>(shape_.batch * shape_.steps * shape_.pixels());
    return rows * (2 * static_cast<double>(shape_.kernel_elements()) / kFlopsRate +
                   static_cast<double>(shape_.columns()) * kNanosecondsOfColumn);
  }
  size_t scratch_bytes() const override {
    return rnn_loops().scratch_bytes[type_](block(0), is_gradient_);
  }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    const RnnLoops& loops = rnn_loops();
    for (int64_t unit = begin; unit < end; ++unit)
      (is_gradient_ ? loops.gradient : loops.forward)[type_](block(unit), scratch);
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = begin * items_, last = std::min(end * items_, shape_.batch);
    const int64_t steps = shape_.steps, pixels = shape_.pixels();
    const int64_t u = pixels * shape_.units, columns = pixels * shape_.columns();
    const auto range = [&](const std::byte* data, int64_t from, int64_t to, int64_t bytes,
                           bool is_write) {
      if (data != nullptr)
        out.push_back({data + from * bytes, data + to * bytes, is_write});
    };
    const auto item = static_cast<int64_t>(dtype_size(shape_.dtype));
    range(arrays_.kernel, 0, shape_.kernel_elements(), item, false);
    range(arrays_.bias, 0, shape_.columns(), item, false);
    range(arrays_.mask, first, last, steps, false);
    range(arrays_.drop, first, last, columns * item, false);
    range(arrays_.x, first, last, steps * columns * item, false);
    for (const std::byte* state : {arrays_.h0, arrays_.c0})
      range(state, first, last, u * item, false);
    for (const std::byte* sequence : {arrays_.h, arrays_.c})
      range(sequence, first, last, steps * u * item, !is_gradient_);
    range(arrays_.gates, first, last, steps * pixels * shape_.gate_columns() * item, !is_gradient_);
    for (const std::byte* sequence : {arrays_.dh, arrays_.dc})
      range(sequence, first, last, steps * u * item, false);
    range(arrays_.dx, first, last, steps * columns * item, true);
    range(arrays_.extra, first, last, steps * (shape_.cell == RnnCell::kGru ? u : columns) * item,
          true);
    for (const std::byte* state : {arrays_.dh0, arrays_.dc0})
      range(state, first, last, u * item, true);
  }

 private:
  // Few batch items are divided between two workers.
  static int64_t items_of(const RnnShape& shape) {
    if (shape.kernel_elements() != shape.units * shape.columns() || shape.pixels() > 1)
      return 1;
    return shape.batch >= 2 * kBlockRows ? kBlockRows
                                         : std::max(kFewestRows, (shape.batch + 1) / 2);
  }

  RnnBlock block(int64_t unit) const {
    RnnBlock b{static_cast<int>(shape_.cell), static_cast<int>(shape_.activation),
               static_cast<int>(shape_.recurrent)};
    b.batch = shape_.batch;
    b.steps = shape_.steps;
    b.units = shape_.units;
    std::ranges::copy(shape_.space, b.space);
    std::ranges::copy(shape_.window, b.window);
    b.first = unit * items_;
    b.count = std::min(items_, shape_.batch - b.first);
    const RnnArrays& a = arrays_;
    b.x = a.x;
    b.kernel = a.kernel;
    b.h0 = a.h0;
    b.c0 = a.c0;
    b.bias = a.bias;
    b.mask = reinterpret_cast<const uint8_t*>(a.mask);
    b.drop = a.drop;
    b.h = a.h;
    b.c = a.c;
    b.gates = a.gates;
    b.dh = a.dh;
    b.dc = a.dc;
    b.dx = a.dx;
    b.dh0 = a.dh0;
    b.dc0 = a.dc0;
    b.extra = a.extra;
    return b;
  }

  RnnShape shape_;
  bool is_gradient_;
  RnnArrays arrays_;
  TypeIndex type_;
  int64_t items_;  // batch items of a unit
};

}  // namespace

void CpuLowering::make(const ScanRnnSpec& spec) {
  const DType dtype = spec.shape.dtype;
  const RnnShape shape = computed(spec.shape);
  const int64_t rows = shape.batch * shape.pixels(), states = rows * shape.units;
  const int64_t sequence = states * shape.steps;
  const int64_t products = rows * shape.steps * shape.columns();
  const int64_t gates = rows * shape.steps * shape.gate_columns();
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
  reads(a.drop, rows * shape.columns());
  reads(a.dh, sequence);
  reads(a.dc, sequence);
  const auto result = [&](std::byte*& data, int64_t elements) {  // an operand of the gradient
    if (data != nullptr)
      data = spec.is_gradient ? read(dtype, data, elements) : written(dtype, data, elements);
  };
  result(a.h, sequence);
  result(a.c, sequence);
  result(a.gates, gates);
  writes(a.dx, products);
  writes(a.dh0, states);
  writes(a.dc0, states);
  writes(a.extra, shape.cell == RnnCell::kGru ? sequence : products);
  add(std::make_unique<ScanRnn>(shape, spec.is_gradient, a));
}

}  // namespace meshtrain::cpu
