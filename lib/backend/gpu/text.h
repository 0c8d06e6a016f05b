// Generated CUDA C++ that several kinds of kernels begin with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain::gpu {

// "typedef float T;"
std::string type_line(std::string_view name, std::string_view type);
// "constexpr int size = 3;"
std::string constant_line(std::string_view type, std::string_view name, int64_t value);

// Types of indices: U unsigned, I signed. They have 32 bits when all values below `reach` fit,
// since 64-bit division takes several times as long. `reach` includes the steps of loops beyond the
// end.
std::string index_types(int64_t reach);

// "auto NAME = [](U i) -> I {...};": the offset of the element with the flat (row-major) index i.
std::string offset_line(std::string_view name, const Shape& sizes,
                        const std::vector<int64_t>& strides);

// Returns the number of elements from the lowest to the highest offset of such a loop.
int64_t reach_of(const Shape& sizes, const std::vector<int64_t>& strides);

// "auto fused = [](A x, A y, A z) -> A {...};": x * y + z, rounded once where A is a float.
std::string fused_line(DType dtype);

// Returns the type of sums and products of `dtype` between kernels.
DType compute_dtype(DType dtype);

}  // namespace meshtrain::gpu
