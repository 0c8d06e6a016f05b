// Code over the stored type of an array's elements.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace meshtrain {

// Calls `function` with a value of the stored type; false for the 16-bit floats, which have none.
template <class F>
bool with_type(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return function(uint8_t{}), true;
    case DType::kInt8:
      return function(int8_t{}), true;
    case DType::kInt16:
      return function(int16_t{}), true;
    case DType::kUInt16:
      return function(uint16_t{}), true;
    case DType::kInt32:
      return function(int32_t{}), true;
    case DType::kUInt32:
      return function(uint32_t{}), true;
    case DType::kInt64:
      return function(int64_t{}), true;
    case DType::kUInt64:
      return function(uint64_t{}), true;
    case DType::kFloat32:
      return function(float{}), true;
    case DType::kFloat64:
      return function(double{}), true;
    default:
      return false;
  }
}

}  // namespace meshtrain
