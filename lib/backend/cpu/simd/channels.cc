// Loops over tensors whose last dimension is the channel: per-channel sums, and windows of pools.
#include "backend/cpu/simd/half.h"

namespace meshtrain::cpu {
namespace {

// --- sums ----------------------------------------------------------------------------------------

constexpr int kDoubles = 8;  // of a block: the order of a sum is the same on every level
constexpr int kMaxBlocks = 8;

template <class T>
struct Blocks {
  typedef T type __attribute__((vector_size(kDoubles * sizeof(T)), aligned(sizeof(T)), may_alias));
};
typedef double Wide __attribute__((vector_size(kDoubles * sizeof(double))));

template <class T>
inline Wide load_wide(const T* p) {
  return __builtin_convertvector(*reinterpret_cast<const typename Blocks<T>::type*>(p), Wide);
}

// first[j] += sum of u[r * stride + j], second[j] += sum of products, j < N * kDoubles.
template <class T, int N>
void sum_blocks(double* first, double* second, const T* u, const T* v, int64_t rows,
                int64_t stride) {
  Wide a[N], b[N];
  for (int i = 0; i < N; ++i)
    a[i] = b[i] = Wide{};
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const Wide x = load_wide(u + r * stride + i * kDoubles);
      a[i] += x;
      b[i] += x * load_wide(v + r * stride + i * kDoubles);
    }
  }
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < kDoubles; ++j) {
      first[i * kDoubles + j] += a[i][j];
      second[i * kDoubles + j] += b[i][j];
    }
  }
}

template <class T, int N = kMaxBlocks>
void sum_blocks_of(int64_t blocks, double* first, double* second, const T* u, const T* v,
                   int64_t rows, int64_t stride) {
  if constexpr (N > 0) {
    if (blocks == N) {
      sum_blocks<T, N>(first, second, u, v, rows, stride);
    } else {
      sum_blocks_of<T, N - 1>(blocks, first, second, u, v, rows, stride);
    }
  }
}

template <class T>
void sum_columns(double* first, double* second, const T* u, const T* v, int64_t rows,
                 int64_t columns, int64_t stride) {
  int64_t c = 0;
  while (columns - c >= kDoubles) {
    int64_t blocks = (columns - c) / kDoubles;
    blocks = blocks < kMaxBlocks ? blocks : kMaxBlocks;
    sum_blocks_of<T>(blocks, first + c, second + c, u + c, v + c, rows, stride);
    c += blocks * kDoubles;
  }
  for (; c < columns; ++c) {
    double a = 0, b = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double x = static_cast<double>(u[r * stride + c]);
      a += x;
      b += x * static_cast<double>(v[r * stride + c]);
    }
    first[c] += a;
    second[c] += b;
  }
}

// Several rows of few channels are read as one: as many as make whole blocks.
template <class T>
void channel_sums(double* out, const void* u, const void* v, int64_t rows, int64_t channels) {
  const T* x = static_cast<const T*>(u);
  const T* y = static_cast<const T*>(v);
  double* second = out + channels;
  for (int64_t c = 0; c < 2 * channels; ++c)
    out[c] = 0;
  int64_t joined = 1;
  while (joined < kDoubles && joined * channels % kDoubles != 0)
    joined *= 2;
  while (joined * channels < kDoubles)
    joined *= 2;
  constexpr int64_t kWidest = kMaxBlocks * kDoubles;
  const int64_t columns = joined * channels;
  int64_t done = 0;
  if (joined > 1 && columns <= kWidest) {
    double first_of[kWidest] = {}, second_of[kWidest] = {};
    const int64_t lines = rows / joined;
    sum_columns<T>(first_of, second_of, x, y, lines, columns, columns);
    for (int64_t i = 0; i < columns; ++i) {
      out[i % channels] += first_of[i];
      second[i % channels] += second_of[i];
    }
    done = lines * joined;
  }
  sum_columns<T>(out, second, x + done * channels, y + done * channels, rows - done, channels,
                 channels);
}

// --- pools ---------------------------------------------------------------------------------------

constexpr int64_t kChunk = 64;  // channels at once

template <class T>
void largest(T* y, const T* x, const PoolArgs& window, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c)
    y[c] = x[window.offsets[0] + c];
  for (int64_t i = 1; i < window.cells; ++i) {
    const T* cell = x + window.offsets[i];
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c)
      y[c] = mt::max(y[c], cell[c]);
  }
}

template <class T>
void max_pool(void* y, const PoolArgs& window) {
  T* out = static_cast<T*>(y);
  if (window.cells == 0) {
    for (int64_t c = 0; c < window.channels; ++c)
      out[c] = -static_cast<T>(__builtin_inf());
    return;
  }
  largest<T>(out, static_cast<const T*>(window.x), window, window.channels);
}

template <class T>
void max_pool_grad(void* dx, const void* dy, const PoolArgs& window) {
  for (int64_t begin = 0; window.cells > 0 && begin < window.channels; begin += kChunk) {
    const int64_t left = window.channels - begin;
    const int64_t n = left < kChunk ? left : kChunk;
    const T* x = static_cast<const T*>(window.x) + begin;
    T* out = static_cast<T*>(dx) + begin;
    const T* g = static_cast<const T*>(dy) + begin;
    T best[kChunk], rest[kChunk];
    largest<T>(best, x, window, n);
    for (int64_t c = 0; c < n; ++c)
      rest[c] = g[c];
    for (int64_t i = 0; i < window.cells; ++i) {
      const T* cell = x + window.offsets[i];
      T* to = out + window.offsets[i];
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const bool found = cell[c] == best[c] || cell[c] != cell[c];
        to[c] += found ? rest[c] : T{0};
        rest[c] = found ? T{0} : rest[c];
      }
    }
  }
}

template <class T>
void avg_pool(void* y, const PoolArgs& window) {
  T* out = static_cast<T*>(y);
  const T count = static_cast<T>(window.cells > 0 ? window.cells : 1);
  for (int64_t c = 0; c < window.channels; ++c)
    out[c] = T{0};
  for (int64_t i = 0; i < window.cells; ++i) {
    const T* cell = static_cast<const T*>(window.x) + window.offsets[i];
#pragma omp simd
    for (int64_t c = 0; c < window.channels; ++c)
      out[c] += cell[c];
  }
  for (int64_t c = 0; c < window.channels; ++c)
    out[c] /= count;
}

template <class T>
void avg_pool_grad(void* dx, const void* dy, const PoolArgs& window) {
  const T* g = static_cast<const T*>(dy);
  const T count = static_cast<T>(window.cells > 0 ? window.cells : 1);
  for (int64_t i = 0; i < window.cells; ++i) {
    T* to = static_cast<T*>(dx) + window.offsets[i];
#pragma omp simd
    for (int64_t c = 0; c < window.channels; ++c)
      to[c] += g[c] / count;
  }
}

// --- pools of 16 bits: a chunk of a window's cells is widened ------------------------------------

// The largest of the window's cells in the channels [first, first + channels).
template <class H>
void largest_half(float* best, const PoolArgs& window, int64_t first, int64_t channels) {
  float cell[kChunk];
  const H* x = static_cast<const H*>(window.x) + first;
  widen(best, x + window.offsets[0], channels);
  for (int64_t i = 1; i < window.cells; ++i) {
    widen(cell, x + window.offsets[i], channels);
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c)
      best[c] = mt::max(best[c], cell[c]);
  }
}

template <class H>
void max_pool_half(void* y, const PoolArgs& window) {
  float best[kChunk];
  for (int64_t begin = 0; begin < window.channels; begin += kChunk) {
    const int64_t left = window.channels - begin;
    const int64_t n = left < kChunk ? left : kChunk;
    if (window.cells == 0) {
      for (int64_t c = 0; c < n; ++c)
        best[c] = -__builtin_inff();
    } else {
      largest_half<H>(best, window, begin, n);
    }
    narrow(static_cast<H*>(y) + begin, best, n);
  }
}

template <class H>
void max_pool_grad_half(void* dx, const void* dy, const PoolArgs& window) {
  float best[kChunk], rest[kChunk], cell[kChunk];
  for (int64_t begin = 0; window.cells > 0 && begin < window.channels; begin += kChunk) {
    const int64_t left = window.channels - begin;
    const int64_t n = left < kChunk ? left : kChunk;
    largest_half<H>(best, window, begin, n);
    widen(rest, static_cast<const H*>(dy) + begin, n);
    for (int64_t i = 0; i < window.cells; ++i) {
      widen(cell, static_cast<const H*>(window.x) + begin + window.offsets[i], n);
      float* to = static_cast<float*>(dx) + begin + window.offsets[i];
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const bool found = cell[c] == best[c] || cell[c] != cell[c];
        to[c] += found ? rest[c] : 0.0f;
        rest[c] = found ? 0.0f : rest[c];
      }
    }
  }
}

template <class H>
void avg_pool_half(void* y, const PoolArgs& window) {
  float total[kChunk], cell[kChunk];
  const float count = static_cast<float>(window.cells > 0 ? window.cells : 1);
  for (int64_t begin = 0; begin < window.channels; begin += kChunk) {
    const int64_t left = window.channels - begin;
    const int64_t n = left < kChunk ? left : kChunk;
    for (int64_t c = 0; c < n; ++c)
      total[c] = 0;
    for (int64_t i = 0; i < window.cells; ++i) {
      widen(cell, static_cast<const H*>(window.x) + begin + window.offsets[i], n);
#pragma omp simd
      for (int64_t c = 0; c < n; ++c)
        total[c] += cell[c];
    }
    for (int64_t c = 0; c < n; ++c)
      total[c] /= count;
    narrow(static_cast<H*>(y) + begin, total, n);
  }
}

template <class H>
void avg_pool_grad_half(void* dx, const void* dy, const PoolArgs& window) {
  float g[kChunk];
  for (int64_t begin = 0; begin < window.channels; begin += kChunk) {
    const int64_t left = window.channels - begin;
    const int64_t n = left < kChunk ? left : kChunk;
    widen(g, static_cast<const H*>(dy) + begin, n);
    PoolArgs chunk = window;
    chunk.channels = n;
    avg_pool_grad<float>(static_cast<float*>(dx) + begin, g, chunk);
  }
}

template <class H>
void fill_half(KernelTable& table) {
  constexpr int type = kIndexOf<H>;
  table.max_pool[type] = max_pool_half<H>;
  table.max_pool_grad[type] = max_pool_grad_half<H>;
  table.avg_pool[type] = avg_pool_half<H>;
  table.avg_pool_grad[type] = avg_pool_grad_half<H>;
}

template <class T>
void fill_type(KernelTable& table) {
  constexpr int type = kIndexOf<T>;
  table.channel_sums[type] = channel_sums<T>;
  table.max_pool[type] = max_pool<T>;
  table.max_pool_grad[type] = max_pool_grad<T>;
  table.avg_pool[type] = avg_pool<T>;
  table.avg_pool_grad[type] = avg_pool_grad<T>;
}

}  // namespace

void MESHTRAIN_FILL(fill_channels)(KernelTable& table) {
  fill_type<float>(table);
  fill_type<double>(table);
  fill_half<BFloat16>(table);
  fill_half<Float16>(table);
}

}  // namespace meshtrain::cpu
