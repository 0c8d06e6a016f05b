// fit.class_weight, and consistent sample weights for all data of a run.
#pragma once

#include "config/config.h"
#include "data/dataset.h"

namespace meshtrain {

// The weights of fit.class_weight by class number. A key is the name of a class where the data have
// names, else its number; numbers also do where no name is one. Keys that are neither are left out,
// and E112 says so to `problems`, where there are any.
using ClassWeights = std::vector<std::pair<int64_t, Located<double>>>;
ClassWeights class_weights(const FitConfig& fit, const std::vector<std::string>& names,
                           Diagnostics* problems = nullptr);

// The only target of the data, or the only one whose output has a loss; nothing where several have
// one.
std::optional<size_t> only_target(const Config& config, const Dataset& dataset);

// Gives each label the weight of its class: 1 for a class that is not listed. Class ids have a
// weight each, of samples (n,) or (n, 1), of steps (n, steps) or of pixels (n, h, w, 1); one-hot
// rows (n, ..., classes) have that of their class. Does nothing when fit.class_weight is empty.
// Adds E317 when the data cannot have class weights: own sample weights, several losses, several
// yes or no labels a sample. Without `knows_classes`, of data that were not read whole, keys that
// are no class are no problem.
void apply_class_weight(const Config& config, bool knows_classes, Dataset& dataset,
                        Diagnostics& diagnostics);

// Adds weights of 1, shaped as those of `like`, when `like` has weights and `dataset` has none. One
// compiled step then serves both, with the same numbers as without weights.
void match_sample_weight(const Dataset& like, Dataset& dataset);

}  // namespace meshtrain
