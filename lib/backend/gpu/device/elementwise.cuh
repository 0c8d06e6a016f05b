// What generated chains of elementwise ops are made of: the ops, and elements in memory.
#pragma once

#include "backend/formulas/elementwise.h"
#include "backend/gpu/device/types.cuh"

namespace mt {
namespace {

// x * y + z, rounded once where A is a float.
template <class A>
MT_FN A fused(A x, A y, A z) {
  return add(mul(x, y), z);
}
template <>
MT_FN float fused<float>(float x, float y, float z) {
  return ::fmaf(x, y, z);
}
template <>
MT_FN double fused<double>(double x, double y, double z) {
  return ::fma(x, y, z);
}

}  // namespace
}  // namespace mt
