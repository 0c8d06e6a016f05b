// Images and their windows. Cell k of the window of output o is element o * stride + k * dilation -
// pad of the input, in each of the three spatial dimensions; cells outside of the input do not
// exist.
#pragma once

#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

struct Window {
  int input[3], output[3], cells[3], strides[3], dilations[3], pads[3];
};

// An element of images with so many pixels: `column` of pixel p of an image, and its number there.
template <class U>
struct Pixel {
  U image, number, column;
  int p[3];
};
template <class X, Window W, bool of_input, long long columns>
MT_FN Pixel<typename X::U> pixel_of(typename X::U i) {
  using U = typename X::U;
  constexpr U n0 = of_input ? W.input[0] : W.output[0], n1 = of_input ? W.input[1] : W.output[1];
  constexpr U n2 = of_input ? W.input[2] : W.output[2], of_pixel = columns;
  Pixel<U> out;
  out.number = i % (n0 * n1 * n2 * of_pixel);
  out.column = i % of_pixel;
  i /= of_pixel;
  out.p[2] = (int)(i % n2);
  i /= n2;
  out.p[1] = (int)(i % n1);
  i /= n1;
  out.p[0] = (int)(i % n0);
  out.image = i / n0;
  return out;
}

// Calls visit(cell, pixel) with the numbers of the cells of output p, in their order, and of the
// pixels of the input that they are.
template <class X, Window W, class Visit>
MT_FN void each_cell(const int (&p)[3], const Visit& visit) {
  using I = typename X::I;
  for (int z = 0; z < W.cells[0]; ++z) {
    const int a = p[0] * W.strides[0] - W.pads[0] + z * W.dilations[0];
    if (a < 0 || a >= W.input[0])
      continue;
    for (int y = 0; y < W.cells[1]; ++y) {
      const int b = p[1] * W.strides[1] - W.pads[1] + y * W.dilations[1];
      if (b < 0 || b >= W.input[1])
        continue;
      for (int x = 0; x < W.cells[2]; ++x) {
        const int c = p[2] * W.strides[2] - W.pads[2] + x * W.dilations[2];
        if (c < 0 || c >= W.input[2])
          continue;
        visit((z * W.cells[1] + y) * W.cells[2] + x, ((I)a * W.input[1] + b) * W.input[2] + c);
      }
    }
  }
}

// The place along dimension D of the window whose cell k is element p of the input; -1: none.
template <Window W, int D>
MT_FN int window_of(int p, int k) {
  const int first = p + W.pads[D] - k * W.dilations[D];
  if (first < 0 || first % W.strides[D] != 0 || first / W.strides[D] >= W.output[D])
    return -1;
  return first / W.strides[D];
}

// Calls visit(cell, o) for every window o that pixel p of the input is in, as which cell; the last
// cell first where is_turned, which is the order of the windows.
template <Window W, bool is_turned, class Visit>
MT_FN void each_window(const int (&p)[3], const Visit& visit) {
  constexpr int n0 = W.cells[0], n1 = W.cells[1], n2 = W.cells[2];
  for (int k0 = 0; k0 < n0; ++k0) {
    const int z = is_turned ? n0 - 1 - k0 : k0, a = window_of<W, 0>(p[0], z);
    if (a < 0)
      continue;
    for (int k1 = 0; k1 < n1; ++k1) {
      const int y = is_turned ? n1 - 1 - k1 : k1, b = window_of<W, 1>(p[1], y);
      if (b < 0)
        continue;
      for (int k2 = 0; k2 < n2; ++k2) {
        const int x = is_turned ? n2 - 1 - k2 : k2, c = window_of<W, 2>(p[2], x);
        if (c < 0)
          continue;
        const int o[3] = {a, b, c};
        visit((z * n1 + y) * n2 + x, o);
      }
    }
  }
}
// The number of output o.
template <class X, Window W>
MT_FN typename X::I output_number(const int (&o)[3]) {
  return ((typename X::I)o[0] * W.output[1] + o[1]) * W.output[2] + o[2];
}

}  // namespace
}  // namespace mt
