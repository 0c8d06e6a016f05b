// Declares the functions of the C library that formulas are made of. NVRTC knows them, and the
// tests' GPU has declared them.
#pragma once

#if defined(MESHTRAIN_ISA)
// No <math.h>: see backend/cpu/simd/math.h. glibc's vector math (libmvec, 4 ulp at most) has these
// functions; its headers say so only under -ffast-math.
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
// These are instructions.
#define MESHTRAIN_BUILTIN_MATH(name) \
  double name(double) noexcept;      \
  float name##f(float) noexcept;
MESHTRAIN_BUILTIN_MATH(sqrt)
MESHTRAIN_BUILTIN_MATH(fabs)
MESHTRAIN_BUILTIN_MATH(floor)
MESHTRAIN_BUILTIN_MATH(rint)
#undef MESHTRAIN_BUILTIN_MATH
}
#elif !defined(__CUDACC__) && !defined(MESHTRAIN_EMULATED)
#include <math.h>
#endif
