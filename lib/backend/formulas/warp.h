// Where an image is sampled at affine or projective coordinates (ir/ops/warp.cc): a place along one
// axis is between two pixels, its taps. Products and sums are rounded one by one, so that places
// are the same on every device.
#pragma once

#include "backend/formulas/math.h"
#include "base/device_function.h"

namespace mt {
namespace {

// As meshtrain::WarpFill.
enum class WarpFill : unsigned char { kConstant, kNearest, kWrap, kReflect, kMirror };

// Never contracted into one rounding.
MT_FN double mul_rn(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
MT_FN double add_rn(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

// One axis of the place that t = (a, b, c) takes (x, y) to: a x + b y + c.
MT_FN double warp_place(const double* t, double x, double y) {
  return add_rn(add_rn(mul_rn(t[0], x), mul_rn(t[1], y)), t[2]);
}

// What a projective transform, of 8 terms, divides both places by.
MT_FN double warp_divisor(const double* t, double x, double y) {
  return add_rn(add_rn(mul_rn(t[6], x), mul_rn(t[7], y)), 1.0);
}

MT_FN long long positive_mod(long long a, long long n) {
  return (a % n + n) % n;
}
// The pixel that stands at an index outside of [0, size); -1: the fill value.
MT_FN long long filled_index(long long index, long long size, WarpFill fill) {
  if (index >= 0 && index < size)
    return index;
  switch (fill) {
    case WarpFill::kConstant:
      return -1;
    case WarpFill::kNearest:
      return index < 0 ? 0 : size - 1;
    case WarpFill::kWrap:
      return positive_mod(index, size);
    case WarpFill::kReflect: {
      const long long phase = positive_mod(index, 2 * size);
      return phase < size ? phase : 2 * size - 1 - phase;
    }
    case WarpFill::kMirror: {
      const long long phase = size > 1 ? positive_mod(index, 2 * size - 2) : 0;
      return phase < size ? phase : 2 * size - 2 - phase;
    }
  }
  return -1;
}

// The pixels along one axis that take part in a sample; the first alone where `nearest`.
struct WarpTaps {
  long long index[2];
  double weight[2];
};
MT_FN WarpTaps warp_taps(double place, long long size, WarpFill fill, bool nearest) {
  constexpr double kFar = 1e9;  // so that indices are integers, whatever the transform
  if (!(::fabs(place) < kFar))
    place = -kFar;
  if (nearest)
    return {{filled_index(static_cast<long long>(::round(place)), size, fill), -1}, {1, 0}};
  const double low = ::floor(place);
  const long long first = static_cast<long long>(low);
  return {{filled_index(first, size, fill), filled_index(first + 1, size, fill)},
          {1 - (place - low), place - low}};
}

}  // namespace
}  // namespace mt
