// The types of elements and indices, and how kernels read and write elements.
//
// A T in memory is computed with as Compute<T>: float for both 16-bit floats, else T itself. From
// and to 16 bits values are rounded to the nearest, ties to even; NaN stays NaN. Without NVRTC, on
// the emulated GPU, the same is computed in whole numbers.
#pragma once

#include "base/device_function.h"

namespace mt {

constexpr unsigned kThreads = 256;  // of a block

namespace {

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

// --- bits --------------------------------------------------------------------------------------

MT_FN float float_of(unsigned bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
#endif
}
MT_FN unsigned bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  unsigned bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
#endif
}
MT_FN double double_of(unsigned long long bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double((long long)bits);
#else
  double x;
  __builtin_memcpy(&x, &bits, 8);
  return x;
#endif
}

// --- 16-bit floats -----------------------------------------------------------------------------

MT_FN float get(bf16 x) {
  return float_of((unsigned)x.bits << 16);
}
MT_FN float get(f16 x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
#else
  const unsigned sign = (unsigned)(x.bits & 0x8000u) << 16, mantissa = x.bits & 0x3ffu;
  const unsigned exponent = x.bits >> 10 & 31u;
  if (exponent == 31u)
    return float_of(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0u)
    return (sign != 0u ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
  return float_of(sign | (exponent + 112u) << 23 | mantissa << 13);
#endif
}
template <class T>
MT_FN T get(T x) {
  return x;
}

MT_FN unsigned short bf16_bits(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
#else
  const unsigned bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (unsigned short)(bits >> 16 | 0x40u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}
MT_FN unsigned short f16_bits(float x) {
#ifdef __CUDA_ARCH__
  unsigned short out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
#else
  const unsigned all = bits_of(x), sign = all >> 16 & 0x8000u, bits = all & 0x7fffffffu;
  if (bits > 0x7f800000u)
    return (unsigned short)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
  if (bits >= 0x477ff000u)
    return (unsigned short)(sign | 0x7c00u);
  if (bits < 0x38800000u)  // below the normal numbers: steps of 2^-24, as those of 0.5f
    return (unsigned short)(sign | (bits_of(float_of(bits) + 0.5f) - 0x3f000000u));
  return (unsigned short)(sign | (bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13);
#endif
}

// --- elements ----------------------------------------------------------------------------------

// What arithmetic on a T is done in, and how a result becomes a T again.
template <class T>
struct Element {
  using compute = T;
  static MT_FN T put(T x) { return x; }
};
template <>
struct Element<bf16> {
  using compute = float;
  static MT_FN bf16 put(float x) { return {bf16_bits(x)}; }
};
template <>
struct Element<f16> {
  using compute = float;
  static MT_FN f16 put(float x) { return {f16_bits(x)}; }
};
template <class T>
using Compute = typename Element<T>::compute;

template <class T>
MT_FN T put(Compute<T> x) {
  return Element<T>::put(x);
}
// x after rounding to T and back.
template <class T>
MT_FN Compute<T> rounded(Compute<T> x) {
  return get(put<T>(x));
}
template <class T>
MT_FN Compute<T> load(const T* from) {
  return get(*from);
}
template <class T>
MT_FN void store(T* to, Compute<T> x) {
  *to = put<T>(x);
}

// N neighbours as one access; their address must be a multiple of its size.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
// Elements [i, i + N) of the n at `from`; beyond the end: zeros. `from` aligned as Pack<T, N>.
template <int N, class T, class I>
MT_FN void read(Compute<T> (&out)[N], const T* from, I i, I n) {
  if (i + N <= n) {
    const Pack<T, N> pack = *(const Pack<T, N>*)(from + i);
#pragma unroll
    for (int e = 0; e < N; ++e)
      out[e] = get(pack.v[e]);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e)
      out[e] = i + e < n ? load(from + i + e) : Compute<T>(0);
  }
}
template <int N, class T, class I>
MT_FN void write(T* to, I i, I n, const Compute<T> (&x)[N]) {
  if (i + N <= n) {
    Pack<T, N> pack;
#pragma unroll
    for (int e = 0; e < N; ++e)
      pack.v[e] = put<T>(x[e]);
    *(Pack<T, N>*)(to + i) = pack;
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (i + e < n)
        store(to + i + e, x[e]);
    }
  }
}

template <bool condition, class A, class B>
struct Either {
  using type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using type = B;
};

// --- launches ----------------------------------------------------------------------------------

// The one parameter of a kernel: addresses and whole numbers.
template <int N>
struct Params {
  unsigned long long v[N];
};
// Which of `count` launches in one grid this block belongs to: the last that begins at or before
// it. The first `count` words of the parameter are the launches' first blocks.
template <int N>
MT_FN unsigned instance_of(const Params<N>& params, unsigned count) {
  unsigned low = 0, high = count;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    if (blockIdx.x >= (unsigned)params.v[middle])
      low = middle;
    else
      high = middle;
  }
  return low;
}

// --- indices -----------------------------------------------------------------------------------

// Unsigned and signed indices. 32 bits where all of them fit, since 64-bit division takes several
// times as long.
struct Index32 {
  using U = unsigned;
  using I = int;
};
struct Index64 {
  using U = unsigned long long;
  using I = long long;
};

// A loop over N dimensions in row-major order, and the steps of an array in each, in elements.
template <int N>
struct Loop {
  static constexpr int rank = N;
  long long sizes[N];
  long long strides[N];
};
// The offset of the element with the flat index i.
template <class X, Loop L, int D = L.rank - 1>
MT_FN typename X::I offset(typename X::U i) {
  using U = typename X::U;
  using I = typename X::I;
  constexpr U size = (U)L.sizes[D];
  constexpr I stride = (I)L.strides[D];
  if constexpr (D == 0)
    return stride == 0 ? I(0) : (I)i * stride;
  else
    return (stride == 0 || size == 1 ? I(0) : (I)(i % size) * stride) +
           offset<X, L, D - 1>(i / size);
}

}  // namespace
}  // namespace mt
