#include "engine/common_types.h"

#include <algorithm>
#include <vector>

#include "engine/setup.h"

namespace meshtrain {
namespace {

// A type of inputs (compute_dtype_of()) that holds the numbers of both.
DType common_type(DType a, DType b) {
  if (a == b) {
    return a;
  }
  const DType wide = dtype_size(a) > dtype_size(b) ? a : b;
  const DType narrow = wide == a ? b : a;
  if (is_floating(a) || is_floating(b)) {
    return wide == DType::kFloat32 && dtype_size(narrow) == 1 ? DType::kFloat32 : DType::kFloat64;
  }
  return dtype_size(wide) == 1            ? DType::kInt32
         : dtype_size(a) == dtype_size(b) ? DType::kInt64  // int32 and uint32
                                          : wide;
}

}  // namespace

void unify_types(RunData& data) {
  std::vector<Dataset*> parts;
  for (std::optional<Dataset>* part :
       {&data.train, &data.validation, &data.test, &data.unweighted}) {
    if (part->has_value()) {
      parts.push_back(&**part);
    }
  }
  for (const auto arrays : {&Dataset::inputs, &Dataset::targets}) {
    const auto most = std::max_element(parts.begin(), parts.end(), [&](auto* a, auto* b) {
      return (a->*arrays).size() < (b->*arrays).size();
    });
    for (size_t i = 0; most != parts.end() && i < ((*most)->*arrays).size(); ++i) {
      std::optional<DType> common;
      for (const Dataset* part : parts) {
        if (i < (part->*arrays).size()) {
          const DType own = compute_dtype_of((part->*arrays)[i].rows->dtype());
          common = common ? common_type(*common, own) : own;
        }
      }
      for (Dataset* part : parts) {
        if (i < (part->*arrays).size()) {
          RowsPtr& rows = (part->*arrays)[i].rows;
          const bool is_common = compute_dtype_of(rows->dtype()) == *common;
          rows = is_common ? rows : cast_rows(rows, *common);
        }
      }
    }
  }
}

}  // namespace meshtrain
