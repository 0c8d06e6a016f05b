// Convolutions and their gradients where the library does not take them. With x (pixels, channels),
// a kernel (cells, channels of a group, filters) and y (pixels, filters), for the channels c and
// the filters f of one group:
//
//   forward   y[o][f]    = sum over cells k, then c, of x[pixel k of window o][c] kernel[k][c][f]
//   dgrad     x[p][c]    = sum over windows o that p is in, as cell k, then f, of y[o][f]
//   wgrad     kernel[k][c][f] = sum over images and outputs o of x[pixel k of window o][c] y[o][f]
//
// The first two are computed by a thread for each element, whose products are added without being
// rounded before; the last is a reduction (reduce.cuh), in parts where there are many terms.
#pragma once

#include "backend/gpu/device/reduce.cuh"
#include "backend/gpu/device/window.cuh"

namespace mt {
namespace {

// Steps in bytes from image to image of what is read, of the kernel, and of what is written.
struct Convolving {
  Window window;
  long long elements;
  long long channels, filters, groups;
  long long from_step, kernel_step, to_step;

  MT_FN constexpr long long group_channels() const { return channels / groups; }
  MT_FN constexpr long long group_filters() const { return filters / groups; }
};

// Arguments: x, kernel, y.
template <Convolving P, class X, class T>
MT_FN void conv(const unsigned long long* arg, unsigned block) {
  using A = Compute<T>;
  using U = typename X::U;
  using I = typename X::I;
  constexpr U filters = P.filters, group_channels = P.group_channels();
  constexpr U group_filters = P.group_filters();
  const U i = (U)block * kThreads + threadIdx.x;
  if (i >= (U)P.elements)
    return;
  const Pixel<U> at = pixel_of<X, P.window, false, P.filters>(i);
  const T* x = (const T*)(arg[0] + at.image * (unsigned long long)P.from_step) +
               at.column / group_filters * group_channels;
  const T* kernel = (const T*)(arg[1] + at.image * (unsigned long long)P.kernel_step) + at.column;
  T* to = (T*)(arg[2] + at.image * (unsigned long long)P.to_step) + at.number;
  A sum = A(0);
  each_cell<X, P.window>(at.p, [&](int k, I pixel) {
    const T* from = x + pixel * (I)P.channels;
    const T* cell = kernel + (I)k * (I)(group_channels * filters);
    for (U c = 0; c < group_channels; ++c)
      sum = fused(load(from + c), load(cell + c * filters), sum);
  });
  store(to, sum);
}

// Arguments: y, kernel, x.
template <Convolving P, class X, class T>
MT_FN void conv_dgrad(const unsigned long long* arg, unsigned block) {
  using A = Compute<T>;
  using U = typename X::U;
  using I = typename X::I;
  constexpr U filters = P.filters, group_channels = P.group_channels();
  constexpr U group_filters = P.group_filters();
  const U i = (U)block * kThreads + threadIdx.x;
  if (i >= (U)P.elements)
    return;
  const Pixel<U> at = pixel_of<X, P.window, true, P.channels>(i);
  const U first = at.column / group_channels * group_filters;
  const T* y = (const T*)(arg[0] + at.image * (unsigned long long)P.from_step) + first;
  const T* kernel = (const T*)(arg[1] + at.image * (unsigned long long)P.kernel_step) +
                    at.column % group_channels * filters + first;
  T* to = (T*)(arg[2] + at.image * (unsigned long long)P.to_step) + at.number;
  A sum = A(0);
  each_window<P.window, false>(at.p, [&](int k, const int(&o)[3]) {
    const T* from = y + output_number<X, P.window>(o) * (I)filters;
    const T* cell = kernel + (I)k * (I)(group_channels * filters);
    for (U f = 0; f < group_filters; ++f)
      sum = fused(load(from + f), load(cell + f), sum);
  });
  store(to, sum);
}

// Output k: an element of the kernel; term r: a pixel of the gradient of y.
template <Convolving P, class X, class T, class R>
struct WgradTerms {
  using U = typename X::U;
  using I = typename X::I;
  using A = Compute<T>;
  unsigned long long x_base, dy_base;
  R* out;

  static MT_FN A none() { return A(0); }
  static MT_FN A join(A a, A b) { return a + b; }
  static MT_FN A other(A a, unsigned bit) { return other_lane(a, bit); }
  // The place along dimension D of cell k of the window of output o.
  template <int D>
  static MT_FN int place(U o, U k) {
    constexpr Window W = P.window;
    return (int)o * W.strides[D] - W.pads[D] + (int)k * W.dilations[D];
  }
  MT_FN A term(U k, U r) const {
    constexpr Window W = P.window;
    constexpr U filters = P.filters, group_channels = P.group_channels();
    constexpr U group_filters = P.group_filters();
    constexpr U o1 = W.output[1], o2 = W.output[2], pixels = W.output[0] * o1 * o2;
    constexpr U k1 = W.cells[1], k2 = W.cells[2];
    const U filter = k % filters, cell = k / filters / group_channels;
    const U channel = filter / group_filters * group_channels + k / filters % group_channels;
    const U pixel = r % pixels, image = r / pixels;
    const int a = place<0>(pixel / (o1 * o2), cell / (k1 * k2));
    const int b = place<1>(pixel / o2 % o1, cell / k2 % k1);
    const int c = place<2>(pixel % o2, cell % k2);
    if (a < 0 || a >= W.input[0] || b < 0 || b >= W.input[1] || c < 0 || c >= W.input[2])
      return A(0);
    const T* x = (const T*)(x_base + image * (unsigned long long)P.from_step) +
                 (((I)a * W.input[1] + b) * W.input[2] + c) * (I)P.channels;
    const T* dy =
        (const T*)(dy_base + image * (unsigned long long)P.to_step) + (I)pixel * (I)filters;
    return load(x + channel) * load(dy + filter);
  }
  MT_FN void result(U k, unsigned part, A a) const {
    constexpr U outputs = (U)P.window.cells[0] * P.window.cells[1] * P.window.cells[2] *
                          P.group_channels() * P.filters;
    store(out + (U)part * outputs + k, a);
  }
};

// Arguments: x, the gradient of y, the kernel's gradients of the parts.
template <Reducing Q, Convolving P, class X, class T, class R>
MT_FN void conv_wgrad(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  const WgradTerms<P, X, T, R> terms = {arg[0], arg[1], (R*)arg[2]};
  reduce<Q, X>(terms, block, shared);
}

}  // namespace
}  // namespace mt
