// Images sampled at affine, projective or given coordinates, and the gradient.
//
// Forward: result (x, y) is the sum of its taps (formulas/warp.h), each pixel by the product of the
// weights of its row and its column. The gradient of a pixel is the sum over the results that it is
// a tap of. Along a line of results the place in x moves by t[0], so those that fall near column m
// of the image, as the fill continues it, are neighbours: only these are looked at, line by line,
// and which of them the pixel is a tap of is decided as in the forward direction.
#pragma once

#include "backend/formulas/warp.h"
#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

struct Warping {
  long long total, step;  // elements of all images, and the step of threads
  long long height, width, channels;
  long long terms;  // of a transform; 0: a column and a row for each pixel
  WarpFill fill;
  bool nearest;

  MT_FN constexpr int taps() const { return nearest ? 1 : 2; }
  MT_FN constexpr unsigned long long numbers() const {
    return (unsigned long long)(terms == 0 ? 2 * height * width : terms);
  }
};

// An element of an image: its pixel, the transform of its image, and its channel of another array
// of such images.
template <class E>
struct WarpElement {
  long long column, row;
  const double* t;
  const E* in;
};
template <Warping W, class E>
MT_FN WarpElement<E> warp_element(unsigned long long i, const unsigned long long* arg) {
  using U = unsigned long long;
  constexpr U width = W.width, height = W.height, channels = W.channels;
  constexpr U image = width * height * channels;
  const U pixel = i / channels;
  return {(long long)(pixel % width), (long long)(pixel / width % height),
          (const double*)arg[1] + i / image * W.numbers(),
          (const E*)arg[0] + i / image * image + i % channels};
}
// The place along axis 0, of columns, or 1, of rows.
template <Warping W>
MT_FN double place_at(const double* t, int axis, long long x, long long y) {
  if constexpr (W.terms == 0)
    return t[2 * (y * W.width + x) + axis];
  const double place = warp_place(t + 3 * axis, (double)x, (double)y);
  if constexpr (W.terms == 8)
    return place / warp_divisor(t, (double)x, (double)y);
  return place;
}
template <Warping W>
MT_FN WarpTaps warp_rows(const double* t, long long x, long long y) {
  return warp_taps(place_at<W>(t, 1, x, y), W.height, W.fill, W.nearest);
}
template <Warping W>
MT_FN WarpTaps warp_columns(const double* t, long long x, long long y) {
  return warp_taps(place_at<W>(t, 0, x, y), W.width, W.fill, W.nearest);
}

// Arguments of both kernels: images, transforms (image, terms), the result.
template <Warping W, class E>
MT_FN void warp(const unsigned long long* arg, unsigned block, Compute<E> fill_value) {
  using T = Compute<E>;
  unsigned long long i = (unsigned long long)block * kThreads + threadIdx.x;
  for (; i < (unsigned long long)W.total; i += (unsigned long long)W.step) {
    const WarpElement<E> at = warp_element<W, E>(i, arg);
    const WarpTaps columns = warp_columns<W>(at.t, at.column, at.row);
    const WarpTaps rows = warp_rows<W>(at.t, at.column, at.row);
    T sum = 0;
    for (int r = 0; r < W.taps(); ++r) {
      for (int c = 0; c < W.taps(); ++c) {
        const T weight = (T)(rows.weight[r] * columns.weight[c]);
        const bool is_inside = rows.index[r] >= 0 && columns.index[c] >= 0;
        const long long pixel = rows.index[r] * W.width + columns.index[c];
        sum += weight * (is_inside ? load(at.in + pixel * W.channels) : fill_value);
      }
    }
    store((E*)arg[2] + i, sum);
  }
}

// Where the results of a line stand whose column is `column` of the image, in its copy m as the
// fill continues it: copy m begins at m * width, and every other one is mirrored where the fill
// reflects.
struct WarpBand {
  double low, high;
};
template <Warping W>
MT_FN WarpBand warp_band(long long column, long long m) {
  if constexpr (W.fill == WarpFill::kConstant)
    return {(double)column - 1, (double)column + 1};
  if constexpr (W.fill == WarpFill::kNearest) {
    return {column == 0 ? -2e9 : (double)column - 1,
            column == W.width - 1 ? 2e9 : (double)column + 1};
  }
  const bool is_mirrored = W.fill == WarpFill::kReflect && (m & 1) != 0;
  const double middle = (double)(m * W.width + (is_mirrored ? W.width - 1 - column : column));
  return {middle - 1, middle + 1};
}

// Calls visit(x) for results of line y, among them all that fall near the column: all of the line
// where places do not move by equal steps.
template <Warping W, class Visit>
MT_FN void each_near(const double* t, long long column, long long y, const Visit& visit) {
  if constexpr (W.terms == 0) {
    for (long long x = 0; x < W.width; ++x)
      visit(x);
    return;
  }
  const double begin = warp_place(t, 0, (double)y);
  const double end = warp_place(t, (double)(W.width - 1), (double)y);
  const double lowest = begin < end ? begin : end, highest = begin < end ? end : begin;
  long long first = 0, last = 0;
  bool is_known = W.terms == 6 && W.fill != WarpFill::kMirror &&  // no layer has this one
                  ::fabs(begin) < 1e9 && ::fabs(end) < 1e9;
  if constexpr (W.fill == WarpFill::kWrap || W.fill == WarpFill::kReflect) {
    if (is_known) {
      first = (long long)::floor(lowest / W.width) - 1;
      last = (long long)::floor(highest / W.width) + 1;
      is_known = last - first <= W.width;
    }
  }
  if (!is_known) {
    for (long long x = 0; x < W.width; ++x)
      visit(x);
    return;
  }
  long long next = 0;
  for (long long k = first; k <= last && next < W.width; ++k) {
    const WarpBand band = warp_band<W>(column, end < begin ? first + last - k : k);
    if (band.high < lowest || band.low > highest)
      continue;
    double from = 0, to = (double)(W.width - 1);
    if (begin != end) {
      const double a = ((end < begin ? band.high : band.low) - begin) / (end - begin) * to;
      const double b = ((end < begin ? band.low : band.high) - begin) / (end - begin) * to;
      if (a - 1 > from)
        from = ::floor(a - 1);
      if (b + 1 < to)
        to = ::ceil(b + 1);
    }
    if (from > next)
      next = (long long)from;
    for (; next <= (long long)to; ++next)
      visit(next);
  }
}

template <Warping W, class E>
MT_FN void warp_transpose(const unsigned long long* arg, unsigned block) {
  using T = Compute<E>;
  unsigned long long i = (unsigned long long)block * kThreads + threadIdx.x;
  for (; i < (unsigned long long)W.total; i += (unsigned long long)W.step) {
    const WarpElement<E> at = warp_element<W, E>(i, arg);
    T sum = 0;
    for (long long y = 0; y < W.height; ++y) {
      each_near<W>(at.t, at.column, y, [&](long long x) {
        const WarpTaps rows = warp_rows<W>(at.t, x, y);
        const WarpTaps columns = warp_columns<W>(at.t, x, y);
        for (int r = 0; r < W.taps(); ++r) {
          for (int c = 0; c < W.taps(); ++c) {
            if (rows.index[r] == at.row && columns.index[c] == at.column)
              sum += (T)(rows.weight[r] * columns.weight[c]) *
                     load(at.in + (y * W.width + x) * W.channels);
          }
        }
      });
    }
    store((E*)arg[2] + i, sum);
  }
}

}  // namespace
}  // namespace mt
