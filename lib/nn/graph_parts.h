// Small subgraphs that layers, losses and metrics share.
#pragma once

#include <optional>
#include <vector>

#include "ir/builder.h"

namespace meshtrain {

// The axis counted from 0, or nothing when it is outside of the rank.
std::optional<int64_t> axis_in(int64_t axis, size_t rank);
inline int64_t last_axis(const Builder& b, ValueId x) {
  return static_cast<int64_t>(b.shape(x).size()) - 1;
}

// Dimension `from` at place `to`, the others in their order, as numpy.moveaxis; both count from 0.
Shape move_axis(const Shape& shape, size_t from, size_t to);
ValueId move_axis(Builder& builder, ValueId x, size_t from, size_t to);

// A scalar of x's dtype.
inline ValueId constant_like(Builder& b, ValueId x, double value) {
  return b.constant(value, b.dtype(x));
}
inline ValueId one_minus(Builder& b, ValueId x) {
  return b.sub(constant_like(b, x, 1), x);
}
// Returns these numbers as a vector: a constant of a graph has one value only.
ValueId vector_of(Builder& builder, const std::vector<double>& values, DType dtype);

// The sum of scalars of one dtype, of at least one. Where they are sums over shards, all are
// reduced together: as addends in turn each would be, and wait, alone.
ValueId sum_of_scalars(Builder& builder, const std::vector<ValueId>& scalars);

// Whether an id is not 0, bool.
inline ValueId nonzero_mask(Builder& b, ValueId ids) {
  return b.binary("ne", ids, constant_like(b, ids, 0));
}

// Rows of a table of `count` rows and perhaps zeros behind them, which no id reaches.
ValueId rows_of_ids(Builder& builder, ValueId table, ValueId ids, int64_t count);

// (x - mean) / sqrt(variance + epsilon) over the axes.
ValueId standardized(Builder& builder, ValueId x, const std::vector<int64_t>& axes, double epsilon);

// 1 / sqrt of a sum of squares, which counts as `least` below that. 0 where the sum is 0: a vector
// of zeros has no direction, so a product with it has derivative 0 there.
ValueId inverse_length(Builder& builder, ValueId sum, double least);
// x divided by its length along `axis`; a length below kEpsilon counts as that.
ValueId l2_normalized(Builder& builder, ValueId x, int64_t axis);

}  // namespace meshtrain
