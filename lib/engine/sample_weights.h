// fit.class_weight, and sample weights that all data of a run agree on.
#pragma once

#include "config/config.h"
#include "data/dataset.h"

namespace meshtrain {

// Gives each sample the weight of its class: 1 for a class that is not listed. Labels (n,) or (n,
// 1) are class ids, (n, classes) are one-hot. Does nothing when `fit.class_weight` is empty. Adds
// E317 when the data cannot have class weights: own sample weights, several targets, labels of a
// higher rank.
void apply_class_weight(const FitConfig& fit, Dataset& dataset, Diagnostics& diagnostics);

// Weights of 1, shaped as those of `like`, when `like` has weights and `dataset` has none: one
// compiled step serves both, and its numbers are those without weights.
void match_sample_weight(const Dataset& like, Dataset& dataset);

}  // namespace meshtrain
