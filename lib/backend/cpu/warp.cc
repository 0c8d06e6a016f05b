// Images sampled at affine coordinates (ir/ops/warp.cc says what is computed).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/lowering.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

// A pixel along one axis that takes part in a sample; index -1: the fill value.
struct Tap {
  int64_t index = 0;
  double weight = 1;
};

struct Taps {
  Tap at[2];
  int count = 1;
};

int64_t inside(int64_t index, int64_t size, WarpFill fill) {
  if (index >= 0 && index < size) {
    return index;
  }
  const auto mod = [](int64_t a, int64_t n) { return (a % n + n) % n; };
  switch (fill) {
    case WarpFill::kConstant:
      return -1;
    case WarpFill::kNearest:
      return index < 0 ? 0 : size - 1;
    case WarpFill::kWrap:
      return mod(index, size);
    case WarpFill::kReflect: {
      const int64_t phase = mod(index, 2 * size);
      return phase < size ? phase : 2 * size - 1 - phase;
    }
  }
  return -1;
}

Taps taps_at(double place, int64_t size, const WarpShape& shape) {
  constexpr double kFar = 1e9;  // so that indices are integers, whatever the transform
  if (!(std::abs(place) < kFar)) {
    place = -kFar;
  }
  Taps out;
  if (shape.nearest) {
    out.at[0] = {inside(static_cast<int64_t>(std::round(place)), size, shape.fill), 1};
    return out;
  }
  const double low = std::floor(place);
  const auto index = static_cast<int64_t>(low);
  out.at[0] = {inside(index, size, shape.fill), 1 - (place - low)};
  out.at[1] = {inside(index + 1, size, shape.fill), place - low};
  out.count = 2;
  return out;
}

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
      run_image(in_ + n * image_, transforms_ + n * 6, out);
    }
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const auto range = [&](const auto* data, int64_t each, bool is_write) {
      return Access{reinterpret_cast<const std::byte*>(data + begin * each),
                    reinterpret_cast<const std::byte*>(data + end * each), is_write};
    };
    out.push_back(range(in_, image_, false));
    out.push_back(range(transforms_, 6, false));
    out.push_back(range(out_, image_, true));
  }

 private:
  void run_image(const T* in, const double* t, T* out) const {
    for (int64_t i = 0; i < shape_.height; ++i) {
      for (int64_t j = 0; j < shape_.width; ++j) {
        const auto y = static_cast<double>(i), x = static_cast<double>(j);
        const Taps columns = taps_at(t[0] * x + t[1] * y + t[2], shape_.width, shape_);
        const Taps rows = taps_at(t[3] * x + t[4] * y + t[5], shape_.height, shape_);
        const int64_t place = (i * shape_.width + j) * shape_.channels;
        for (int r = 0; r < rows.count; ++r) {
          for (int c = 0; c < columns.count; ++c) {
            add_tap(rows.at[r], columns.at[c], in, out, place);
          }
        }
      }
    }
  }

  void add_tap(const Tap& row, const Tap& column, const T* in, T* out, int64_t place) const {
    const T weight = static_cast<T>(row.weight * column.weight);
    const int64_t channels = shape_.channels;
    if (row.index < 0 || column.index < 0) {
      for (int64_t c = 0; c < channels && !kTranspose; ++c) {
        out[place + c] += weight * static_cast<T>(shape_.fill_value);
      }
      return;
    }
    const int64_t pixel = (row.index * shape_.width + column.index) * channels;
    const T* from = in + (kTranspose ? place : pixel);
    T* to = out + (kTranspose ? pixel : place);
    for (int64_t c = 0; c < channels; ++c) {
      to[c] += weight * from[c];
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
