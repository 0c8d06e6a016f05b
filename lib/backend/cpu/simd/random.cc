// Philox4x32-10 (base/philox.h), many blocks at once, and dropout by its bits.
#include <immintrin.h>

#include "backend/cpu/simd/half.h"
#include "backend/formulas/dropout.h"
#include "base/philox_block.h"

namespace meshtrain::cpu {
namespace {

// Counters are kept one word to a 64-bit lane; the high half of a lane may hold anything, because
// the multiplication reads the low halves only.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = kVectorBytes / 8;
constexpr int kVectors = 4;  // independent chains that hide the latency of the multiplications

typedef uint64_t Lanes __attribute__((vector_size(kVectorBytes)));
typedef uint64_t LanesUnaligned __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));

inline Lanes multiply_low_halves(Lanes a, Lanes b) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (Lanes)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}

inline Lanes splat(uint64_t value) {
  return Lanes{} + value;
}

// Lane pairs a0 b0 a1 b1 ... in order.
inline void store_interleaved(Lanes a, Lanes b, uint32_t* out) {
  Lanes low_mask, high_mask;
  for (int i = 0; i < kLanes; ++i) {
    low_mask[i] = static_cast<uint64_t>(i / 2 + (i % 2) * kLanes);
    high_mask[i] = low_mask[i] + kLanes / 2;
  }
  LanesUnaligned* place = reinterpret_cast<LanesUnaligned*>(out);
  place[0] = __builtin_shuffle(a, b, low_mask);
  place[1] = __builtin_shuffle(a, b, high_mask);
}

// The 4 * kLanes * kVectors numbers of as many blocks from first_block on, in order.
template <int kVectors>
void philox_group(uint64_t first_block, const RandomStream& stream, uint32_t* out) {
  Lanes c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  Lanes index;
  for (int i = 0; i < kLanes; ++i)
    index[i] = static_cast<uint64_t>(i);
  for (int v = 0; v < kVectors; ++v) {
    c0[v] = index + (first_block + static_cast<uint64_t>(v * kLanes));
    c1[v] = c0[v] >> 32;
    c2[v] = splat(stream.stream);
    c3[v] = splat(stream.step);
  }
  uint32_t k0 = static_cast<uint32_t>(stream.key);
  uint32_t k1 = static_cast<uint32_t>(stream.key >> 32);
  const Lanes m0 = splat(mt::kPhiloxFactors[0]), m1 = splat(mt::kPhiloxFactors[1]);
  for (int round = 0; round < mt::kPhiloxRounds; ++round) {
    const Lanes key0 = splat(k0), key1 = splat(k1);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Lanes p0 = multiply_low_halves(c0[v], m0);
      const Lanes p1 = multiply_low_halves(c2[v], m1);
      c0[v] = (p1 >> 32) ^ c1[v] ^ key0;
      c2[v] = (p0 >> 32) ^ c3[v] ^ key1;
      c1[v] = p1;
      c3[v] = p0;
    }
    k0 += mt::kPhiloxSteps[0];
    k1 += mt::kPhiloxSteps[1];
  }
  const Lanes low_half = splat(0xFFFFFFFFu);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store_interleaved((c0[v] & low_half) | (c1[v] << 32), (c2[v] & low_half) | (c3[v] << 32),
                      out + 4 * kLanes * v);
  }
}

void random_bits(uint32_t* out, uint64_t first, int64_t n, const RandomStream& stream) {
  constexpr int64_t kLarge = 4 * kLanes * kVectors;
  constexpr int64_t kSmall = 4 * kLanes;
  uint64_t block = first / 4;
  int64_t skip = static_cast<int64_t>(first % 4);
  int64_t done = 0;
  while (done < n) {
    if (skip == 0 && n - done >= kLarge) {
      philox_group<kVectors>(block, stream, out + done);
      block += kLarge / 4;
      done += kLarge;
      continue;
    }
    uint32_t numbers[kSmall];
    philox_group<1>(block, stream, numbers);
    const int64_t count = kSmall - skip < n - done ? kSmall - skip : n - done;
    for (int64_t i = 0; i < count; ++i)
      out[done + i] = numbers[skip + i];
    block += kSmall / 4;
    done += count;
    skip = 0;
  }
}

template <class T>
void dropout(void* out, const void* x, const uint32_t* bits, int64_t n, uint32_t threshold,
             double scale) {
  T* o = static_cast<T*>(out);
  const T* in = static_cast<const T*>(x);
  const T factor = static_cast<T>(scale);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = mt::kept(bits[i], threshold, in[i], factor);
}

template <class H>
void dropout_half(void* out, const void* x, const uint32_t* bits, int64_t n, uint32_t threshold,
                  double scale) {
  float block[kHalfBlock];
  for (int64_t i = 0; i < n; i += kHalfBlock) {
    const int64_t count = n - i < kHalfBlock ? n - i : kHalfBlock;
    widen(block, static_cast<const H*>(x) + i, count);
    dropout<float>(block, block, bits + i, count, threshold, scale);
    narrow(static_cast<H*>(out) + i, block, count);
  }
}

}  // namespace

void MESHTRAIN_FILL(fill_random)(KernelTable& table) {
  table.random_bits = random_bits;
  table.dropout[kTypeF32] = dropout<float>;
  table.dropout[kTypeF64] = dropout<double>;
  table.dropout[kTypeBF16] = dropout_half<BFloat16>;
  table.dropout[kTypeF16] = dropout_half<Float16>;
}

}  // namespace meshtrain::cpu
