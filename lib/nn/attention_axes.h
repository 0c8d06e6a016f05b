// The dimensions that attention is over, of inputs (batch, ..., features) of rank 3 or more.
#pragma once

#include "ir/builder.h"

namespace meshtrain {

class AttentionAxes {
 public:
  // Takes the argument `attention_axes` for inputs of `rank`; none stands for all dimensions
  // between batch and features. Returns what is wrong with it, else "".
  std::string set(std::vector<int64_t> given, size_t rank);

  bool has(int64_t axis) const;
  // (batch, ..., heads, features) -> (rows, steps, heads, features): all dimensions that attention
  // is not over become one, and all that it is over. `shape`: of the former.
  ValueId in_rows(Builder& b, ValueId x) const;
  ValueId from_rows(Builder& b, ValueId x, const Shape& shape) const;
  // The dimensions that attention is not over, heads, those of queries, those of keys. The shapes
  // are those of inputs, or of their projections.
  Shape scores_shape(const Shape& query, const Shape& key, int64_t heads) const;

 private:
  std::vector<int64_t> order() const;  // of the dimensions of a projection

  size_t rank_ = 3;  // of the inputs; that of their projections is one more
  std::vector<int64_t> axes_ = {1};
};

}  // namespace meshtrain
