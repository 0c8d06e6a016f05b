// Generated CUDA C++: instantiations of the device code in device/, and lines that chains of
// elementwise ops begin with.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain::gpu {

// "constexpr int size = 3;"
std::string constant_line(std::string_view type, std::string_view name, int64_t value);

// A member of a struct among template arguments: numbers, flags, arrays, or text as it is.
struct Field {
  Field(std::string_view name, int64_t value);
  Field(std::string_view name, double value);  // exactly
  Field(std::string_view name, const std::array<int64_t, 3>& values);
  Field(std::string_view name, std::string_view text) : name(name), text(text) {}
  std::string_view name;
  std::string text;
};
// "Reducing{.lanes = 32, .groups = 1}"
std::string struct_text(std::string_view type, std::initializer_list<Field> fields);
// "Loop<2>{{3, 4}, {4, 1}}" of device/types.cuh.
std::string loop_text(const Shape& sizes, const std::vector<int64_t>& strides);
// "sort<float, 3>(arg, block, shared);": a body that is a function of device/. `more`: arguments
// behind.
std::string call_text(std::string_view function, std::initializer_list<std::string> of,
                      bool uses_shared, std::string_view more = "");

// "Index32" of device/types.cuh where all values below `reach` fit, otherwise "Index64". `reach`
// includes the steps of loops beyond the end.
std::string index_type(int64_t reach);
// Declares this as X, and its types U and I.
std::string index_types(int64_t reach);

// "auto NAME = [](U i) -> I {...};": the offset of the element with the flat (row-major) index i.
std::string offset_line(std::string_view name, const Shape& sizes,
                        const std::vector<int64_t>& strides);

// Returns the number of elements from the lowest to the highest offset of such a loop.
int64_t reach_of(const Shape& sizes, const std::vector<int64_t>& strides);

// Returns the type of sums and products of `dtype` between kernels.
DType compute_dtype(DType dtype);

}  // namespace meshtrain::gpu
