// Shapes: sizes of the dimensions, row-major. The empty shape is a scalar's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshtrain {

using Shape = std::vector<int64_t>;

constexpr int64_t kUnknownDim = -1;  // only in shapes of layers before the batch size is known

// Product of the sizes; 1 for a scalar. Throws InternalError on overflow or an unknown size.
int64_t num_elements(const Shape& shape);
// "(64, 784)", "()", "(None, 10)".
std::string shape_string(const Shape& shape);
// NumPy broadcasting, aligned at the last dimension. Throws InternalError if they do not fit.
Shape broadcast_shapes(const Shape& a, const Shape& b);
bool can_broadcast(const Shape& a, const Shape& b);
// An axis that may count from the end, -1 being the last, counted from 0. Throws InternalError when
// it is outside of the rank.
int64_t normal_axis(int64_t axis, size_t rank);
// The shape of one of the rows, or samples, of an array; of a scalar its own.
Shape without_first(const Shape& shape);
// Elements to skip per step in each dimension: row_major_strides({2, 3}) == {3, 1}.
std::vector<int64_t> row_major_strides(const Shape& shape);

}  // namespace meshtrain
