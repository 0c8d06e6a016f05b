// Element types. Names are NumPy's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace meshtrain {

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64
};

size_t dtype_size(DType dtype);            // bytes of one element
std::string_view dtype_name(DType dtype);  // "float32"
std::optional<DType> parse_dtype(std::string_view name);
bool is_floating(DType dtype);
bool is_integer(DType dtype);  // bool is not an integer

// Calls `function` with a value of the C++ type of `dtype`: dispatch_float(dtype, [&]<class T>(T)
// {...}).
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kFloat32:
      return function(float{});
    case DType::kFloat64:
      return function(double{});
    default:
      throw InternalError("no float kernel for " + std::string(dtype_name(dtype)));
  }
}

// As dispatch_float, for the types that graphs compute with: bool (as uint8_t), int32, int64,
// uint32, float32, float64.
template <class F>
decltype(auto) dispatch_compute(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return function(uint8_t{});
    case DType::kInt32:
      return function(int32_t{});
    case DType::kUInt32:
      return function(uint32_t{});
    case DType::kInt64:
      return function(int64_t{});
    default:
      return dispatch_float(dtype, function);
  }
}

}  // namespace meshtrain
