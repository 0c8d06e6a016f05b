// Images sampled at affine, projective or given coordinates (ir/ops/warp.cc says what is computed).
#include "backend/formulas/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/lowering.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

static_assert(static_cast<int>(mt::WarpFill::kMirror) == static_cast<int>(WarpFill::kMirror) &&
              static_cast<int>(mt::WarpFill::kReflect) == static_cast<int>(WarpFill::kReflect) &&
              static_cast<int>(mt::WarpFill::kWrap) == static_cast<int>(WarpFill::kWrap) &&
              static_cast<int>(mt::WarpFill::kNearest) == static_cast<int>(WarpFill::kNearest));

// One image a unit.
template <class T, bool kTranspose>
class Warp final : public Kernel {
 public:
  Warp(const WarpShape& shape, const std::byte* in, const std::byte* transforms, std::byte* out)
      : shape_(shape),
        in_(reinterpret_cast<const T*>(in)),
        transforms_(reinterpret_cast<const double*>(transforms)),
        out_(reinterpret_cast<T*>(out)),
        image_(shape.height * shape.width * shape.channels) {}

  int64_t units() const override { return shape_.images; }
  double cost() const override {
    const auto pixels = static_cast<double>(shape_.images * shape_.height * shape_.width);
    return pixels * (20 + 3 * static_cast<double>(shape_.channels));
  }

  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t n = begin; n < end; ++n) {
      T* out = out_ + n * image_;
      std::fill(out, out + image_, T(0));
      run_image(in_ + n * image_, transforms_ + n * shape_.numbers(), out);
    }
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const auto range = [&](const auto* data, int64_t each, bool is_write) {
      return Access{reinterpret_cast<const std::byte*>(data + begin * each),
                    reinterpret_cast<const std::byte*>(data + end * each), is_write};
    };
    out.push_back(range(in_, image_, false));
    out.push_back(range(transforms_, shape_.numbers(), false));
    out.push_back(range(out_, image_, true));
  }

 private:
  void run_image(const T* in, const double* t, T* out) const {
    for (int64_t i = 0; i < shape_.height; ++i) {
      for (int64_t j = 0; j < shape_.width; ++j) {
        const auto y = static_cast<double>(i), x = static_cast<double>(j);
        const double divisor = shape_.terms == 8 ? mt::warp_divisor(t, x, y) : 1;
        const int64_t pixel = i * shape_.width + j;
        const bool is_given = shape_.terms == 0;
        const double column = is_given ? t[2 * pixel] : mt::warp_place(t, x, y) / divisor;
        const double row = is_given ? t[2 * pixel + 1] : mt::warp_place(t + 3, x, y) / divisor;
        const mt::WarpTaps columns = taps_at(column, shape_.width);
        const mt::WarpTaps rows = taps_at(row, shape_.height);
        const int64_t place = pixel * shape_.channels;
        const int taps = shape_.nearest ? 1 : 2;
        for (int r = 0; r < taps; ++r) {
          for (int c = 0; c < taps; ++c)
            add_tap(rows, r, columns, c, in, out, place);
        }
      }
    }
  }

  mt::WarpTaps taps_at(double place, int64_t size) const {
    return mt::warp_taps(place, size, static_cast<mt::WarpFill>(shape_.fill), shape_.nearest);
  }

  void add_tap(const mt::WarpTaps& rows, int r, const mt::WarpTaps& columns, int c, const T* in,
               T* out, int64_t place) const {
    const T weight = static_cast<T>(rows.weight[r] * columns.weight[c]);
    const int64_t row = rows.index[r], column = columns.index[c];
    const int64_t channels = shape_.channels;
    if (row < 0 || column < 0) {
      for (int64_t k = 0; k < channels && !kTranspose; ++k) {
        out[place + k] += weight * static_cast<T>(shape_.fill_value);
      }
      return;
    }
    const int64_t pixel = (row * shape_.width + column) * channels;
    const T* from = in + (kTranspose ? place : pixel);
    T* to = out + (kTranspose ? pixel : place);
    for (int64_t k = 0; k < channels; ++k) {
      to[k] += weight * from[k];
    }
  }

  WarpShape shape_;
  const T* in_;
  const double* transforms_;
  T* out_;
  int64_t image_;  // elements
};

template <bool kTranspose>
KernelPtr make_warp(const WarpShape& shape, const std::byte* in, const std::byte* transforms,
                    std::byte* out) {
  if (shape.dtype == DType::kFloat64) {
    return std::make_unique<Warp<double, kTranspose>>(shape, in, transforms, out);
  }
  MESHTRAIN_CHECK(shape.dtype == DType::kFloat32, "{}", dtype_name(shape.dtype));
  return std::make_unique<Warp<float, kTranspose>>(shape, in, transforms, out);
}

}  // namespace

void CpuLowering::make(const AffineWarpSpec& spec) {
  const WarpShape& shape = spec.shape;
  const int64_t elements = shape.images * shape.height * shape.width * shape.channels;
  const auto make_one = spec.transposed ? make_warp<true> : make_warp<false>;
  add(make_one(computed(shape), read(shape.dtype, spec.x, elements), spec.transforms,
               written(shape.dtype, spec.out, elements)));
}

}  // namespace meshtrain::cpu
