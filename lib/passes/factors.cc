#include "passes/factors.h"

#include <algorithm>

namespace meshtrain {

Projection project(const TensorFactors& tensor, const DimAxes& dims, const ShardingRule& rule,
                   const DeviceMesh& mesh) {
  Projection out;
  out.axes.resize(rule.factors.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    const FactorList& factors = tensor[d];
    size_t at = 0;
    int64_t left = factors.empty() ? 1 : rule.factors[factors[0]].size;
    for (const int axis : dims[d]) {
      while (left == 1 && at + 1 < factors.size()) {
        ++at;
        left = rule.factors[factors[at]].size;
      }
      if (factors.empty() || left % mesh.axis_size(axis) != 0) {
        out.exact = false;
        break;
      }
      out.axes[factors[at]].push_back(axis);
      left /= mesh.axis_size(axis);
    }
  }
  return out;
}

DimAxes unproject(const TensorFactors& tensor, const FactorAxes& axes, const ShardingRule& rule,
                  const DeviceMesh& mesh) {
  DimAxes dims(tensor.size());
  for (size_t d = 0; d < tensor.size(); ++d) {
    for (const int factor : tensor[d]) {
      dims[d].insert(dims[d].end(), axes[factor].begin(), axes[factor].end());
      if (mesh.size_of(axes[factor]) != rule.factors[factor].size) {
        break;
      }
    }
  }
  return dims;
}

int dim_of_factor(const TensorFactors& tensor, int factor) {
  for (size_t d = 0; d < tensor.size(); ++d) {
    if (std::find(tensor[d].begin(), tensor[d].end(), factor) != tensor[d].end()) {
      return static_cast<int>(d);
    }
  }
  return kNone;
}

}  // namespace meshtrain
