// Transforms of data.transform that act on a batch within the training step: MixUp, CutMix
// (mixing.h), and the random layers that move pixels, such as RandomFlip and RandomRotation.
#pragma once

#include <optional>
#include <vector>

#include "config/object.h"
#include "nn/model.h"

namespace meshtrain {

// The arrays of a batch, or their types without the batch dimension.
template <class Array>
struct BatchArrays {
  std::vector<Array> inputs, targets;
  std::optional<Array> sample_weight;
};

// Reports (E113) data that `transform` cannot change. A layer that moves pixels moves all arrays of
// the size of the images, the first input of rank 3: other images, masks (H, W) or (H, W, C), and
// weights of pixels. What is no float keeps its values and its type.
void check_batch_transform(const ConfigObject& transform, const BatchArrays<ValueType>& data,
                           Diagnostics& diagnostics);
// Replaces the values of a batch. What is random is drawn in each step.
void transform_batch(CallContext& context, const ConfigObject& transform,
                     BatchArrays<ValueId>& batch);

}  // namespace meshtrain
