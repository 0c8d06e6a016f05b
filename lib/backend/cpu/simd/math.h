// Shared by the sources in simd/. They are compiled several times with different instruction sets.
// So nothing here or there may have external linkage except the fill functions. The linker could
// keep an inline function of the standard library that was compiled for AVX-512, for all levels.
// Hence no <cmath>, no <algorithm>, no <vector>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernel_table.h"

#ifndef MESHTRAIN_ISA
#error "MESHTRAIN_ISA names the instruction set level, e.g. v3"
#endif
#define MESHTRAIN_JOIN_(a, b) a##_##b
#define MESHTRAIN_JOIN(a, b) MESHTRAIN_JOIN_(a, b)
#define MESHTRAIN_FILL(name) MESHTRAIN_JOIN(name, MESHTRAIN_ISA)

// glibc's vector math (libmvec, 4 ulp at most) has these; its headers say so only under
// -ffast-math.
extern "C" {
#define MESHTRAIN_VECTOR_MATH(name)                                         \
  __attribute__((simd("notinbranch"), const)) double name(double) noexcept; \
  __attribute__((simd("notinbranch"), const)) float name##f(float) noexcept;
MESHTRAIN_VECTOR_MATH(exp)
MESHTRAIN_VECTOR_MATH(log)
MESHTRAIN_VECTOR_MATH(log1p)
MESHTRAIN_VECTOR_MATH(expm1)
MESHTRAIN_VECTOR_MATH(tanh)
MESHTRAIN_VECTOR_MATH(erf)
MESHTRAIN_VECTOR_MATH(sin)
MESHTRAIN_VECTOR_MATH(cos)
#undef MESHTRAIN_VECTOR_MATH
__attribute__((simd("notinbranch"), const)) double pow(double, double) noexcept;
__attribute__((simd("notinbranch"), const)) float powf(float, float) noexcept;
}

namespace meshtrain::cpu {

// Functions that the three compilations export, one per source.
void MESHTRAIN_FILL(fill_elementwise)(KernelTable& table);
void MESHTRAIN_FILL(fill_transcendental)(KernelTable& table);
void MESHTRAIN_FILL(fill_cast)(KernelTable& table);
void MESHTRAIN_FILL(fill_reduce)(KernelTable& table);
void MESHTRAIN_FILL(fill_random)(KernelTable& table);
void MESHTRAIN_FILL(fill_optimizer)(KernelTable& table);
void MESHTRAIN_FILL(fill_gemm)(KernelTable& table);
void MESHTRAIN_FILL(fill_attention)(KernelTable& table);
void MESHTRAIN_FILL(fill_conv)(KernelTable& table);
void MESHTRAIN_FILL(fill_channels)(KernelTable& table);

namespace {

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

template <class T>
constexpr int kIndexOf = -1;
template <>
constexpr int kIndexOf<uint8_t> = kTypeU8;
template <>
constexpr int kIndexOf<int32_t> = kTypeI32;
template <>
constexpr int kIndexOf<uint32_t> = kTypeU32;
template <>
constexpr int kIndexOf<int64_t> = kTypeI64;
template <>
constexpr int kIndexOf<float> = kTypeF32;
template <>
constexpr int kIndexOf<double> = kTypeF64;

// Unsigned type in which integer arithmetic wraps instead of being undefined.
template <class T>
struct WrapType {
  using type = T;
};
template <>
struct WrapType<int32_t> {
  using type = uint32_t;
};
template <>
struct WrapType<int64_t> {
  using type = uint64_t;
};
template <class T>
using Wrap = typename WrapType<T>::type;

// NaN wins, as in JAX, so that a NaN is never hidden by a relu.
template <class T>
inline T larger(T a, T b) {
  return (a >= b) | (a != a) ? a : b;
}
template <class T>
inline T smaller(T a, T b) {
  return (a <= b) | (a != a) ? a : b;
}

}  // namespace
}  // namespace meshtrain::cpu
