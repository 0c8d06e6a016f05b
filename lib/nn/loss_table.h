// Shared by the files of the losses: the table's form and common formulas.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "nn/arguments.h"
#include "nn/graph_parts.h"
#include "nn/loss_functions.h"

namespace meshtrain {

using LossArgs = const ConfigObject&;  // with every argument of the class
using LossFunction = LossValues (*)(Builder&, LossArgs, ValueId y, ValueId p);

struct LossEntry {
  std::string_view key;  // name_key of the class
  LossFunction function = nullptr;
  TargetKind targets = TargetKind::kLikeOutput;
  Expects expects = Expects::kAnything;
};
using LossTable = std::vector<LossEntry>;

LossTable regression_losses();    // loss_regression.cc: errors, similarity, hinges
LossTable crossentropy_losses();  // loss_crossentropy.cc: of probabilities and logits
LossTable region_losses();        // loss_regions.cc: dice, tversky
LossTable circle_losses();        // loss_circle.cc
LossTable ctc_losses();           // loss_ctc.cc
LossTable lambda_losses();        // loss_lambda.cc: expressions of the config

// Reduces over the last dimension; a scalar is unchanged.
inline ValueId mean_last(Builder& b, ValueId x) {
  return b.shape(x).empty() ? x : b.reduce_mean(x, {last_axis(b, x)});
}
// The argument `axis`, counted from 0.
int64_t class_axis(const Builder& b, LossArgs args, ValueId p);
// Ids (...) or (..., 1) beside predictions (..., classes), without the 1, as int32.
ValueId class_ids(Builder& b, ValueId y, ValueId p);

}  // namespace meshtrain
