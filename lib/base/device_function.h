// Formulas that stand once for everybody: the loops of the CPU, the kernels of the GPU, and the
// tests' GPU on the host. Headers of such formulas include only their like, because NVRTC has no
// library to include, and say MT_FN where other headers say inline, MT_UNROLL for #pragma unroll.
// Their names are in mt and in an unnamed namespace: the loops of the CPU are compiled for several
// instruction sets, whose code must not meet when it is linked (backend/cpu/simd/math.h).
#pragma once

#ifdef __CUDACC__
#define MT_FN __device__ __forceinline__
#define MT_UNROLL _Pragma("unroll")
#else
#define MT_FN inline
#define MT_UNROLL
#endif
