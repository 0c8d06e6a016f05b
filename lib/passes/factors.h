// Shardings in terms of an op's rule: the axes of each factor.
#pragma once

#include "ir/op.h"

namespace meshtrain {

using FactorAxes = SmallVector<AxisList, 8>;  // beside ShardingRule::factors

// Distributes the axes of `dims` over the factors of one tensor. Within a dimension the factors
// fill from the major one: an axis is assigned to the first factor that is not full, as long as it
// divides what is left of it. Axes that fit no factor are dropped, and set `exact` to false.
struct Projection {
  FactorAxes axes;
  bool exact = true;
};
Projection project(const TensorFactors& tensor, const DimAxes& dims, const ShardingRule& rule,
                   const DeviceMesh& mesh);

// Returns the dims of a tensor whose factors are split by `axes`. A minor factor of a dimension
// counts only when all factors before it are full: anything else would interleave the data.
DimAxes unproject(const TensorFactors& tensor, const FactorAxes& axes, const ShardingRule& rule,
                  const DeviceMesh& mesh);

// Returns the dimension of `tensor` that mentions `factor`, or kNone.
int dim_of_factor(const TensorFactors& tensor, int factor);

}  // namespace meshtrain
