// Matrix products C = A B that the library does not compute: tiny ones as a reduction (reduce.cuh)
// over k of a(row, k) * b(k, column), and others in tiles. Batches of either are a step apart, in
// elements.
#pragma once

#include "backend/gpu/device/reduce.cuh"

namespace mt {
namespace {

// Strides in elements; the columns of C are adjacent.
struct Product {
  long long m, n, k;
  long long a_step, b_step, c_step;
  long long a_row, a_column, b_row, b_column, c_row;
  bool accumulate;  // C += A B
};

template <Product P, class X, class T>
struct ProductTerms : NumberTerms<Compute<T>, Sum> {
  using U = typename X::U;
  using I = typename X::I;
  using A = Compute<T>;
  const T* a;
  const T* b;
  T* c;

  MT_FN A term(U i, U p) const {
    const I batch = (I)(i / ((U)P.m * (U)P.n)), row = (I)(i / (U)P.n % (U)P.m);
    const I column = (I)(i % (U)P.n);
    return mul(load(a + batch * (I)P.a_step + row * (I)P.a_row + (I)p * (I)P.a_column),
               load(b + batch * (I)P.b_step + (I)p * (I)P.b_row + column * (I)P.b_column));
  }
  MT_FN void result(U i, unsigned, A sum) const {
    const I batch = (I)(i / ((U)P.m * (U)P.n)), row = (I)(i / (U)P.n % (U)P.m);
    const I column = (I)(i % (U)P.n);
    T* const to = c + batch * (I)P.c_step + row * (I)P.c_row + column;
    store(to, P.accumulate ? add((A)load(to), sum) : sum);
  }
};

// Arguments: a, b, c.
template <Reducing Q, Product P, class X, class T>
MT_FN void tiny_product(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  ProductTerms<P, X, T> terms;
  terms.a = (const T*)arg[0];
  terms.b = (const T*)arg[1];
  terms.c = (T*)arg[2];
  reduce<Q, X>(terms, block, shared);
}

// A block computes `tile` rows and columns of C, a thread 4 x 4 elements of it, `depth` of k at a
// time from shared memory.
template <Product P, unsigned tile, unsigned depth, class X, class T>
MT_FN void tiled_product(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using U = typename X::U;
  using I = typename X::I;
  using A = Compute<T>;
  constexpr U m = P.m, n = P.n, k = P.k;
  constexpr I a_row = P.a_row, a_column = P.a_column, b_row = P.b_row, b_column = P.b_column;
  constexpr U tiles_n = (n + tile - 1) / tile, tiles = (m + tile - 1) / tile * tiles_n;
  const unsigned t = threadIdx.x, i = t / 16, j = t % 16;
  const I batch = (I)(block / tiles);
  const U first_row = block % tiles / tiles_n * tile, first_column = block % tiles_n * tile;
  const T* a = (const T*)arg[0] + batch * (I)P.a_step;
  const T* b = (const T*)arg[1] + batch * (I)P.b_step;
  T* c = (T*)arg[2] + batch * (I)P.c_step;
  A* as = (A*)shared;
  A* bs = as + depth * tile;
  A sum[4][4] = {};
  for (U begin = 0; begin < k; begin += depth) {
    for (unsigned e = t; e < tile * depth; e += kThreads) {
      // Neighbouring threads read neighbours.
      const unsigned ap = a_column == 1 ? e % depth : e / tile;
      const unsigned ai = a_column == 1 ? e / depth : e % tile;
      const unsigned bp = b_row == 1 ? e % depth : e / tile;
      const unsigned bj = b_row == 1 ? e / depth : e % tile;
      as[ap * tile + ai] = begin + ap < k && first_row + ai < m
                               ? load(a + (I)(first_row + ai) * a_row + (I)(begin + ap) * a_column)
                               : A(0);
      bs[bp * tile + bj] =
          begin + bp < k && first_column + bj < n
              ? load(b + (I)(begin + bp) * b_row + (I)(first_column + bj) * b_column)
              : A(0);
    }
    __syncthreads();
    for (unsigned p = 0; p < depth; ++p) {
      A x[4], y[4];
#pragma unroll
      for (unsigned q = 0; q < 4; ++q) {
        x[q] = as[p * tile + i + 16 * q];
        y[q] = bs[p * tile + j + 16 * q];
      }
#pragma unroll
      for (unsigned q = 0; q < 4; ++q) {
#pragma unroll
        for (unsigned r = 0; r < 4; ++r)
          sum[q][r] = fused(x[q], y[r], sum[q][r]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (unsigned q = 0; q < 4; ++q) {
#pragma unroll
    for (unsigned r = 0; r < 4; ++r) {
      const U row = first_row + i + 16 * q, column = first_column + j + 16 * r;
      if (row < m && column < n) {
        T* const to = c + (I)row * (I)P.c_row + (I)column;
        store(to, P.accumulate ? add((A)load(to), sum[q][r]) : sum[q][r]);
      }
    }
  }
}

}  // namespace
}  // namespace mt
