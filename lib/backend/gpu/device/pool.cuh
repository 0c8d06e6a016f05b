// Pools and their gradients: one thread an element.
//
// Forward: the maximum or the mean of the cells of a window; outside cells do not count. Gradients
// gather: an input adds up what the windows give to it that it is in, in the order of the windows.
// A maximum gives its gradient to the first of its largest cells, a NaN being larger than
// everything; a mean gives every cell the same.
#pragma once

#include "backend/gpu/device/reduce.cuh"
#include "backend/gpu/device/window.cuh"

namespace mt {
namespace {

// Elements of all images, and the bytes from image to image. Arguments of all kernels: x, dy, the
// result, of the first image.
struct Pooling {
  Window window;
  long long elements, channels;
  long long x_step, dy_step, to_step;
};

template <Pooling P, class X, class T, bool is_max>
MT_FN void pool(const unsigned long long* arg, unsigned block) {
  using V = Compute<T>;
  using U = typename X::U;
  const U i = (U)block * kThreads + threadIdx.x;
  if (i >= (U)P.elements)
    return;
  const Pixel<U> at = pixel_of<X, P.window, false, P.channels>(i);
  const T* x = (const T*)(arg[0] + at.image * (unsigned long long)P.x_step) + at.column;
  T* to = (T*)(arg[2] + at.image * (unsigned long long)P.to_step) + at.number;
  V all = is_max ? smallest<V>() : V(0);
  int count = 0;
  each_cell<X, P.window>(at.p, [&](int, typename X::I pixel) {
    const V v = load(x + pixel * (U)P.channels);
    all = is_max ? max(all, v) : all + v;
    ++count;
  });
  store(to, is_max || count == 0 ? all : all / (V)count);
}

// The cells of a window of a mean along one dimension that are inside.
MT_FN int cells_inside(int first, int cells, int dilation, int size) {
  const int low = first < 0 ? (dilation - 1 - first) / dilation : 0;
  const int end = first >= size ? 0 : (size - 1 - first) / dilation + 1;
  return (end < cells ? end : cells) - low;
}
template <Window W, int D>
MT_FN int cells_inside(int o) {
  return cells_inside(o * W.strides[D] - W.pads[D], W.cells[D], W.dilations[D], W.input[D]);
}

// The cell that the maximum of output o is; -1: the window is empty.
template <Pooling P, class X, class T>
MT_FN int winner_of(const T* x, const int (&o)[3]) {
  using V = Compute<T>;
  V best = V(0);
  int winner = -1;
  each_cell<X, P.window>(o, [&](int cell, typename X::I pixel) {
    const V v = load(x + pixel * (typename X::U)P.channels);
    if (winner < 0 || v > best || (v != v && best == best)) {
      best = v;
      winner = cell;
    }
  });
  return winner;
}

template <Pooling P, class X, class T, bool is_max>
MT_FN void pool_gradient(const unsigned long long* arg, unsigned block) {
  using V = Compute<T>;
  using U = typename X::U;
  constexpr Window W = P.window;
  const U i = (U)block * kThreads + threadIdx.x;
  if (i >= (U)P.elements)
    return;
  const Pixel<U> at = pixel_of<X, P.window, true, P.channels>(i);
  const T* x = (const T*)(arg[0] + at.image * (unsigned long long)P.x_step) + at.column;
  const T* dy = (const T*)(arg[1] + at.image * (unsigned long long)P.dy_step) + at.column;
  T* to = (T*)(arg[2] + at.image * (unsigned long long)P.to_step) + at.number;
  V all = V(0);
  each_window<P.window, true>(at.p, [&](int cell, const int(&o)[3]) {
    const T* gradient = dy + output_number<X, P.window>(o) * (U)P.channels;
    if constexpr (is_max) {
      all += winner_of<P, X>(x, o) == cell ? load(gradient) : V(0);
    } else {
      const int count =
          cells_inside<W, 0>(o[0]) * cells_inside<W, 1>(o[1]) * cells_inside<W, 2>(o[2]);
      all += load(gradient) / (V)count;
    }
  });
  store(to, all);
}

}  // namespace
}  // namespace mt
