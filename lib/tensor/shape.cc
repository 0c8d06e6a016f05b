#include "tensor/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace meshtrain {

int64_t num_elements(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    MESHTRAIN_CHECK(size >= 0, "unknown size in {}", shape_string(shape));
    MESHTRAIN_CHECK(!__builtin_mul_overflow(product, size, &product), "too many elements in {}",
                    shape_string(shape));
  }
  return product;
}

int64_t normal_axis(int64_t axis, size_t rank) {
  const auto size = static_cast<int64_t>(rank);
  MESHTRAIN_CHECK(axis >= -size && axis < size, "axis {} of rank {}", axis, rank);
  return axis < 0 ? axis + size : axis;
}

Shape without_first(const Shape& shape) {
  return shape.empty() ? Shape() : Shape(shape.begin() + 1, shape.end());
}

std::string shape_string(const Shape& shape) {
  std::string out = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    out += i == 0 ? "" : ", ";
    out += shape[i] == kUnknownDim ? "None" : fmt::format("{}", shape[i]);
  }
  return out + (shape.size() == 1 ? ",)" : ")");
}

bool can_broadcast(const Shape& a, const Shape& b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const int64_t x = a[a.size() - i];
    const int64_t y = b[b.size() - i];
    if (x != y && x != 1 && y != 1) {
      return false;
    }
  }
  return true;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  MESHTRAIN_CHECK(can_broadcast(a, b), "{} and {}", shape_string(a), shape_string(b));
  Shape out = a.size() >= b.size() ? a : b;
  const Shape& other = a.size() >= b.size() ? b : a;
  for (size_t i = 1; i <= other.size(); ++i) {
    int64_t& size = out[out.size() - i];
    size = size == 1 ? other[other.size() - i] : size;
  }
  return out;
}

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i > 1; --i) {
    strides[i - 2] = strides[i - 1] * shape[i - 1];
  }
  return strides;
}

}  // namespace meshtrain
