// Running sums over the threads of a block: in round r every thread adds what the thread 2^r before
// it has, so that after log2(kThreads) rounds it has the sum over all up to itself.
#pragma once

#include "backend/formulas/elementwise.h"
#include "backend/gpu/device/types.cuh"

namespace mt {
namespace {

// The sum of x over the threads before this one; `all`: over all. `shared`: kThreads elements,
// which afterwards hold the sums up to and with each thread's. Every thread must come along.
template <class T>
MT_FN T block_scan(T x, T& all, void* shared) {
  T* sums = (T*)shared;
  T sum = x;
  __syncthreads();
  sums[threadIdx.x] = x;
  for (unsigned reach = 1; reach < kThreads; reach *= 2) {
    __syncthreads();
    const T before = threadIdx.x >= reach ? sums[threadIdx.x - reach] : T(0);
    __syncthreads();
    sum = add(sum, before);
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
  all = sums[kThreads - 1];
  return sub(sum, x);
}

}  // namespace
}  // namespace mt
