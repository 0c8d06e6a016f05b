// What the files of the losses share: the table's form and small helpers.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "nn/loss_functions.h"

namespace meshtrain {

constexpr double kLossEpsilon = 1e-7;  // keras.config.epsilon()

using LossArgs = const ConfigObject*;  // may be null: defaults
using LossFunction = LossValues (*)(Builder&, LossArgs, ValueId y, ValueId p);

struct LossEntry {
  std::string_view key;  // name_key of the class
  LossFunction function = nullptr;
  TargetKind targets = TargetKind::kLikeOutput;
};
using LossTable = std::vector<LossEntry>;

LossTable regression_losses();    // loss_regression.cc: errors, similarity, hinges
LossTable crossentropy_losses();  // loss_crossentropy.cc: of probabilities and logits
LossTable region_losses();        // loss_regions.cc: dice, tversky
LossTable circle_losses();        // loss_circle.cc
LossTable ctc_losses();           // loss_ctc.cc

inline int64_t last_axis(const Builder& b, ValueId x) {
  return static_cast<int64_t>(b.shape(x).size()) - 1;
}
// Over the last dimension; a scalar stays.
inline ValueId mean_last(Builder& b, ValueId x) {
  return b.shape(x).empty() ? x : b.reduce_mean(x, {last_axis(b, x)});
}
inline ValueId constant_like(Builder& b, ValueId x, double value) {
  return b.constant(value, b.dtype(x));
}
inline ValueId one_minus(Builder& b, ValueId x) {
  return b.sub(constant_like(b, x, 1), x);
}
// The argument `axis`, counted from 0.
int64_t class_axis(const Builder& b, LossArgs args, ValueId p);
// Ids (...) or (..., 1) beside predictions (..., classes), without the 1, as int32.
ValueId class_ids(Builder& b, ValueId y, ValueId p);

}  // namespace meshtrain
