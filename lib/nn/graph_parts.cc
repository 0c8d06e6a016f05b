#include "nn/graph_parts.h"

#include <numeric>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

// Dimension i of the result is dimension [i] of what is moved.
std::vector<int64_t> permutation(size_t rank, size_t from, size_t to) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), int64_t{0});
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), static_cast<int64_t>(from));
  return order;
}

}  // namespace

std::optional<int64_t> axis_in(int64_t axis, size_t rank) {
  const auto size = static_cast<int64_t>(rank);
  if (axis < -size || axis >= size) {
    return std::nullopt;
  }
  return normal_axis(axis, rank);
}

Shape move_axis(const Shape& shape, size_t from, size_t to) {
  Shape out;
  for (const int64_t d : permutation(shape.size(), from, to)) {
    out.push_back(shape[static_cast<size_t>(d)]);
  }
  return out;
}

ValueId move_axis(Builder& b, ValueId x, size_t from, size_t to) {
  return from == to ? x : b.transpose(x, permutation(b.shape(x).size(), from, to));
}

ValueId vector_of(Builder& b, const std::vector<double>& values, DType dtype) {
  std::vector<ValueId> parts;
  for (const double value : values) {
    parts.push_back(b.constant(value, dtype, {1}));
  }
  return b.concat(std::move(parts), 0);
}

ValueId l2_normalized(Builder& b, ValueId x, int64_t axis) {
  const ValueId sum = b.reduce_sum(b.square(x), {axis}, /*keepdims=*/true);
  return b.mul(x, inverse_length(b, sum, kEpsilon * kEpsilon));
}

ValueId sum_of_scalars(Builder& b, const std::vector<ValueId>& scalars) {
  std::vector<ValueId> rows;
  for (const ValueId scalar : scalars) {
    rows.push_back(b.expand_dims(scalar, 0));
  }
  return b.reduce_sum_all(b.concat(std::move(rows), 0));
}

ValueId rows_of_ids(Builder& b, ValueId table, ValueId ids, int64_t count) {
  if (b.shape(table)[0] > count)
    ids = b.minimum(ids, static_cast<double>(count - 1));
  return b.gather_rows(table, ids);
}

ValueId standardized(Builder& b, ValueId x, const std::vector<int64_t>& axes, double epsilon) {
  const ValueId centred = b.sub(x, b.reduce_mean(x, axes, true));
  const ValueId variance = b.reduce_mean(b.square(centred), axes, true);
  return b.mul(centred, b.unary("rsqrt", b.add(variance, epsilon)));
}

ValueId inverse_length(Builder& b, ValueId sum, double least) {
  const ValueId zero = constant_like(b, sum, 0);
  return b.select(b.binary("eq", sum, zero), zero, b.unary("rsqrt", b.maximum(sum, least)));
}

}  // namespace meshtrain
