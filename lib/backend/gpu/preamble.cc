#include "backend/gpu/preamble.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "backend/gpu/preamble_ops.h"

namespace meshtrain::gpu {
namespace {

constexpr std::string_view kTypes = R"(
constexpr unsigned kThreads = 256;
#define MT_FN __device__ __forceinline__

struct mt_f16 { unsigned short bits; };
struct mt_bf16 { unsigned short bits; };

MT_FN float mt_float_of(unsigned bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x; __builtin_memcpy(&x, &bits, 4); return x;
#endif
}
MT_FN unsigned mt_bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  unsigned bits; __builtin_memcpy(&bits, &x, 4); return bits;
#endif
}
MT_FN double mt_double_of(unsigned long long bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double((long long)bits);
#else
  double x; __builtin_memcpy(&x, &bits, 8); return x;
#endif
}
// Never contracted into one rounding.
MT_FN double mt_mul_rn(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
MT_FN double mt_add_rn(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

// From and to 16-bit floats: nearest, ties to even; NaN stays NaN.
MT_FN float mt_get(mt_bf16 x) { return mt_float_of((unsigned)x.bits << 16); }
MT_FN float mt_get(mt_f16 x) {
#ifdef __CUDA_ARCH__
  float out; asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits)); return out;
#else
  const unsigned sign = (unsigned)(x.bits & 0x8000u) << 16, mantissa = x.bits & 0x3ffu;
  const unsigned exponent = x.bits >> 10 & 31u;
  if (exponent == 31u) return mt_float_of(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0u) return (sign != 0u ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
  return mt_float_of(sign | (exponent + 112u) << 23 | mantissa << 13);
#endif
}
template <class T> MT_FN T mt_get(T x) { return x; }

MT_FN unsigned short mt_bf16_bits(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short out; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x)); return out;
#else
  const unsigned bits = mt_bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(bits >> 16 | 0x40u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}
MT_FN unsigned short mt_f16_bits(float x) {
#ifdef __CUDA_ARCH__
  unsigned short out; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x)); return out;
#else
  const unsigned all = mt_bits_of(x), sign = all >> 16 & 0x8000u, bits = all & 0x7fffffffu;
  if (bits > 0x7f800000u) return (unsigned short)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
  if (bits >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (bits < 0x38800000u)  // below the normal numbers: steps of 2^-24, as those of 0.5f
    return (unsigned short)(sign | (mt_bits_of(mt_float_of(bits) + 0.5f) - 0x3f000000u));
  return (unsigned short)(sign | (bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13);
#endif
}

// What arithmetic on a T is done in, and how a result becomes a T again.
template <class T> struct mt_type {
  typedef T compute;
  static __device__ __forceinline__ T put(T x) { return x; }
};
template <> struct mt_type<mt_bf16> {
  typedef float compute;
  static __device__ __forceinline__ mt_bf16 put(float x) { mt_bf16 out; out.bits = mt_bf16_bits(x); return out; }
};
template <> struct mt_type<mt_f16> {
  typedef float compute;
  static __device__ __forceinline__ mt_f16 put(float x) { mt_f16 out; out.bits = mt_f16_bits(x); return out; }
};
template <class T> using mt_compute = typename mt_type<T>::compute;
template <class T> MT_FN T mt_put(mt_compute<T> x) { return mt_type<T>::put(x); }
template <class T> MT_FN mt_compute<T> mt_rounded(mt_compute<T> x) { return mt_get(mt_put<T>(x)); }
template <class T> MT_FN mt_compute<T> mt_load(const T* from) { return mt_get(*from); }
template <class T> MT_FN void mt_store(T* to, mt_compute<T> x) { *to = mt_put<T>(x); }

// N neighbours as one access; their address must be a multiple of its size.
template <class T, int N> struct alignas(sizeof(T) * N) mt_pack { T v[N]; };
// Elements [i, i + N) of the n at `from`; beyond the end: zeros. `from` aligned as mt_pack<T, N>.
template <int N, class T, class I>
MT_FN void mt_read(mt_compute<T> (&out)[N], const T* from, I i, I n) {
  if (i + N <= n) {
    const mt_pack<T, N> pack = *(const mt_pack<T, N>*)(from + i);
#pragma unroll
    for (int e = 0; e < N; ++e) out[e] = mt_get(pack.v[e]);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) out[e] = i + e < n ? mt_load(from + i + e) : mt_compute<T>(0);
  }
}
template <int N, class T, class I>
MT_FN void mt_write(T* to, I i, I n, const mt_compute<T> (&x)[N]) {
  if (i + N <= n) {
    mt_pack<T, N> pack;
#pragma unroll
    for (int e = 0; e < N; ++e) pack.v[e] = mt_put<T>(x[e]);
    *(mt_pack<T, N>*)(to + i) = pack;
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) if (i + e < n) mt_store(to + i + e, x[e]);
  }
}
)";

constexpr std::string_view kBlocks = R"(
// Philox4x32-10: counter (block low, block high, stream, step).
struct mt_philox_block { unsigned v[4]; };
MT_FN mt_philox_block mt_philox(unsigned long long block, unsigned stream, unsigned step,
                                unsigned k0, unsigned k1) {
  unsigned c0 = (unsigned)block, c1 = (unsigned)(block >> 32), c2 = stream, c3 = step;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0;
    c1 = (unsigned)p1;
    c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1;
    c3 = (unsigned)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  mt_philox_block out;
  out.v[0] = c0; out.v[1] = c1; out.v[2] = c2; out.v[3] = c3;
  return out;
}
// v[lane], in registers.
MT_FN unsigned mt_philox_lane(const mt_philox_block& block, unsigned lane) {
  const unsigned low = lane % 2u == 0u ? block.v[0] : block.v[1];
  const unsigned high = lane % 2u == 0u ? block.v[2] : block.v[3];
  return lane < 2u ? low : high;
}

// The sum of x over the threads before this one; `all`: over all. `shared`: kThreads elements, which
// afterwards hold the sums up to and with each thread's. Every thread must come along.
template <class T> MT_FN T mt_block_scan(T x, T& all, void* shared) {
  T* sums = (T*)shared;
  T sum = x;
  __syncthreads();
  sums[threadIdx.x] = x;
  for (unsigned reach = 1; reach < kThreads; reach *= 2) {
    __syncthreads();
    const T before = threadIdx.x >= reach ? sums[threadIdx.x - reach] : T(0);
    __syncthreads();
    sum = mt_add(sum, before);
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
  all = sums[kThreads - 1];
  return mt_sub(sum, x);
}
)";

struct Names {
  std::string_view type, compute;
};
// In the order of DType.
constexpr Names kNames[] = {{"unsigned char", "unsigned char"},
                            {"unsigned char", "unsigned char"},
                            {"signed char", "signed char"},
                            {"short", "short"},
                            {"unsigned short", "unsigned short"},
                            {"int", "int"},
                            {"unsigned", "unsigned"},
                            {"long long", "long long"},
                            {"unsigned long long", "unsigned long long"},
                            {"mt_f16", "float"},
                            {"mt_bf16", "float"},
                            {"float", "float"},
                            {"double", "double"}};

// The nearest T, where a conversion of a value out of its range would be undefined.
template <class T>
T saturated(double value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value))
    return 0;
  if (value <= static_cast<double>(Limits::min()))
    return Limits::min();
  return value >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(value);
}

std::string integer_literal(double value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return value != 0 ? "(unsigned char)1" : "(unsigned char)0";
    case DType::kUInt8:
      return fmt::format("(unsigned char){}", saturated<uint8_t>(value));
    case DType::kInt8:
      return fmt::format("(signed char){}", saturated<int8_t>(value));
    case DType::kInt16:
      return fmt::format("(short){}", saturated<int16_t>(value));
    case DType::kUInt16:
      return fmt::format("(unsigned short){}", saturated<uint16_t>(value));
    case DType::kUInt32:
      return fmt::format("{}u", saturated<uint32_t>(value));
    case DType::kUInt64:
      return fmt::format("{}ull", saturated<uint64_t>(value));
    default:
      break;
  }
  // The smallest numbers cannot be written with a minus sign in front.
  const bool is_long = dtype == DType::kInt64;
  const int64_t number = is_long ? saturated<int64_t>(value) : saturated<int32_t>(value);
  const std::string_view suffix = is_long ? "ll" : "";
  return number < 0 ? fmt::format("({}{} - 1)", number + 1, suffix)
                    : fmt::format("{}{}", number, suffix);
}

}  // namespace

std::string_view preamble() {
  static const std::string text =
      std::string(kTypes) + std::string(preamble_ops()) + std::string(kBlocks);
  return text;
}

std::string_view type_name(DType dtype) {
  return kNames[static_cast<int>(dtype)].type;
}

std::string_view compute_type(DType dtype) {
  return kNames[static_cast<int>(dtype)].compute;
}

std::string literal(double value, DType dtype) {
  if (!is_floating(dtype))
    return integer_literal(value, dtype);
  const bool is_double = dtype == DType::kFloat64;
  const double exact = is_double ? value : static_cast<double>(static_cast<float>(value));
  if (std::isnan(exact))
    return is_double ? "mt_double_of(0x7ff8000000000000ull)" : "mt_float_of(0x7fc00000u)";
  if (std::isinf(exact)) {
    return fmt::format(
        "{}{}", exact < 0 ? "-" : "",
        is_double ? "mt_double_of(0x7ff0000000000000ull)" : "mt_float_of(0x7f800000u)");
  }
  const std::string text = fmt::format("{:a}{}", exact, is_double ? "" : "f");
  return std::signbit(exact) ? "(" + text + ")" : text;
}

}  // namespace meshtrain::gpu
