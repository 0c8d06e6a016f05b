// MixUp and CutMix: samples of a batch mixed with others of it, targets as well.
// Sources: H. Zhang et al., "mixup: Beyond empirical risk minimization", 2018; S. Yun et al.,
// "CutMix", 2019; arguments and distributions of Keras 3
// layers/preprocessing/image_preprocessing.
#pragma once

#include <vector>

#include "config/object.h"
#include "ir/graph.h"
#include "nn/model.h"

namespace meshtrain {

// The advice where targets are class ids.
inline constexpr const char* kMixedTargetsHelp =
    "write `data: {label: {one_hot: 10}}` with the number of classes, and the loss "
    "categorical_crossentropy";

// Reports (E113) inputs and targets, of shapes without the batch, that `mixing` cannot mix.
void check_mixing(const ConfigObject& mixing, const std::vector<ValueType>& inputs,
                  const std::vector<ValueType>& targets, Diagnostics& diagnostics);
// Replaces the values of a batch by mixed ones. Partners and weights are drawn in each step.
void mix_batch(CallContext& context, const ConfigObject& mixing, std::vector<ValueId>& inputs,
               std::vector<ValueId>& targets);

}  // namespace meshtrain
