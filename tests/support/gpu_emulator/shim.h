// The words of CUDA C++ that generated kernels use, for a host compiler. The emulator puts this in
// front of a module's text, behind module_abi.h; there are no includes, so that it compiles fast.
#pragma once

#define MESHTRAIN_EMULATED

#define __device__
#define __global__
#define __host__
#define __constant__ static const
#define __shared__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

static EmulatorIndex threadIdx, blockIdx, gridDim;
static const EmulatorIndex blockDim = {256, 1, 1};
static void (*emulator_barrier)();
static unsigned long long (*emulator_exchange)(unsigned long long value, unsigned lane);

inline void __syncthreads() {
  emulator_barrier();
}
inline void __syncwarp(unsigned = 0xffffffffu) {
  emulator_exchange(0, 0);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// `lane`: of the whole warp. Lanes whose source lies outside their group of `width` get their own.
template <class T>
inline T emulator_shuffle(T value, unsigned lane) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most eight bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = emulator_exchange(bits, lane);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
inline unsigned emulator_lane() {
  return threadIdx.x & 31u;
}
inline unsigned emulator_source(int lane, int width) {
  const int own = static_cast<int>(emulator_lane());
  return static_cast<unsigned>(lane / width == own / width && lane >= 0 ? lane : own);
}
template <class T>
inline T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  return emulator_shuffle(value, emulator_source(static_cast<int>(emulator_lane()) ^ mask, width));
}
template <class T>
inline T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  return emulator_shuffle(value, emulator_source(static_cast<int>(emulator_lane() + delta), width));
}
template <class T>
inline T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  return emulator_shuffle(
      value, emulator_source(static_cast<int>(emulator_lane()) - static_cast<int>(delta), width));
}
template <class T>
inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  const unsigned first =
      emulator_lane() / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return emulator_shuffle(
      value, first + (static_cast<unsigned>(lane) & (static_cast<unsigned>(width) - 1)));
}

#define EMULATOR_FUNCTION_1(name)  \
  extern "C" float name##f(float); \
  extern "C" double name(double)
EMULATOR_FUNCTION_1(exp);
EMULATOR_FUNCTION_1(exp2);
EMULATOR_FUNCTION_1(expm1);
EMULATOR_FUNCTION_1(log);
EMULATOR_FUNCTION_1(log2);
EMULATOR_FUNCTION_1(log1p);
EMULATOR_FUNCTION_1(tanh);
EMULATOR_FUNCTION_1(sqrt);
EMULATOR_FUNCTION_1(fabs);
EMULATOR_FUNCTION_1(erf);
EMULATOR_FUNCTION_1(sin);
EMULATOR_FUNCTION_1(cos);
EMULATOR_FUNCTION_1(floor);
EMULATOR_FUNCTION_1(ceil);
EMULATOR_FUNCTION_1(trunc);
EMULATOR_FUNCTION_1(rint);
EMULATOR_FUNCTION_1(nearbyint);
EMULATOR_FUNCTION_1(round);
#undef EMULATOR_FUNCTION_1
#define EMULATOR_FUNCTION_2(name)         \
  extern "C" float name##f(float, float); \
  extern "C" double name(double, double)
EMULATOR_FUNCTION_2(pow);
EMULATOR_FUNCTION_2(fmod);
EMULATOR_FUNCTION_2(fmax);
EMULATOR_FUNCTION_2(fmin);
EMULATOR_FUNCTION_2(copysign);
#undef EMULATOR_FUNCTION_2
extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);

inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
template <class T>
inline bool isnan(T x) {
  return __builtin_isnan(x);
}
template <class T>
inline bool isinf(T x) {
  return __builtin_isinf(x);
}
template <class T>
inline bool isfinite(T x) {
  return __builtin_isfinite(x);
}
template <class T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

template <class To, class From>
inline To emulator_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}
inline float __int_as_float(int bits) {
  return emulator_bits<float>(bits);
}
inline int __float_as_int(float x) {
  return emulator_bits<int>(x);
}
inline float __uint_as_float(unsigned bits) {
  return emulator_bits<float>(bits);
}
inline unsigned __float_as_uint(float x) {
  return emulator_bits<unsigned>(x);
}
inline double __longlong_as_double(long long bits) {
  return emulator_bits<double>(bits);
}
inline long long __double_as_longlong(double x) {
  return emulator_bits<long long>(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
template <class T>
inline T __ldg(const T* place) {
  return *place;
}

// Rounded once, never joined with a neighbour: modules are compiled without contraction.
#define EMULATOR_ROUNDED(type, prefix)             \
  inline type __##prefix##add_rn(type a, type b) { \
    return a + b;                                  \
  }                                                \
  inline type __##prefix##sub_rn(type a, type b) { \
    return a - b;                                  \
  }                                                \
  inline type __##prefix##mul_rn(type a, type b) { \
    return a * b;                                  \
  }                                                \
  inline type __##prefix##div_rn(type a, type b) { \
    return a / b;                                  \
  }
EMULATOR_ROUNDED(float, f)
EMULATOR_ROUNDED(double, d)
#undef EMULATOR_ROUNDED
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline double __dsqrt_rn(double x) {
  return sqrt(x);
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline double __fma_rn(double a, double b, double c) {
  return fma(a, b, c);
}

// Calls a __global__ function, whose one parameter is a struct by value.
template <class P>
inline void emulator_call(void (*function)(P), const void* params) {
  P copy;
  __builtin_memcpy(const_cast<void*>(static_cast<const void*>(&copy)), params, sizeof(P));
  function(copy);
}
template <class P>
constexpr unsigned long emulator_params_bytes(void (*)(P)) {
  return sizeof(P);
}
