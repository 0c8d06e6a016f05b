// fit.class_weight, and consistent sample weights for all data of a run.
#pragma once

#include "config/config.h"
#include "data/dataset.h"

namespace meshtrain {

// Gives each sample the weight of its class: 1 for a class that is not listed. Labels (n,) or (n,
// 1) are class ids, (n, classes) are one-hot. Does nothing when `fit.class_weight` is empty. Adds
// E317 when the data cannot have class weights: own sample weights, several targets, labels of a
// higher rank.
void apply_class_weight(const FitConfig& fit, Dataset& dataset, Diagnostics& diagnostics);

// Adds weights of 1, shaped as those of `like`, when `like` has weights and `dataset` has none. One
// compiled step then serves both, with the same numbers as without weights.
void match_sample_weight(const Dataset& like, Dataset& dataset);

}  // namespace meshtrain
