// Masks of steps: what each class of layers makes of the mask of its inputs, known when a model is
// built. A mask is a bool value (batch, steps). Source: Keras 3 layers/layer.py, compute_mask.
#pragma once

#include <span>
#include <string_view>

#include "nn/model.h"

namespace meshtrain {

enum class MaskEffect : uint8_t {
  kDrop,         // the output has none; a warning (W630) says so
  kPass,         // the output has that of Layer::masked_input()
  kCombine,      // where any input's mask holds, if each has one; else none
  kConcatenate,  // joined as the inputs are; an input without one is all valid
  kSteps,        // of a recurrent layer: the first input's, if the output has steps
  kConsume,      // used up: the output has no steps, or others
  kProduce,      // Layer::makes_mask() says whether the output has one
  kRefuse,       // an error (E120)
};
MaskEffect mask_effect(std::string_view class_name);

// Whether a layer's output has a mask; reports masks that are dropped or refused.
bool propagates_mask(const Layer& layer, std::span<const Shape> inputs,
                     const std::vector<bool>& masked, Diagnostics& diagnostics);
// The output's mask, kNone where propagates_mask() is false. `masks`: of the inputs, or kNone.
ValueId propagate_mask(const Layer& layer, CallContext& context, std::span<const ValueId> inputs,
                       std::span<const ValueId> masks);

// Whether output `result` of Layer::further_shapes() has the mask that the first output has.
bool shares_mask(const Layer& layer, size_t result);

// Whether a recurrent layer leaves out the steps that its mask does: `call: {use_mask: false}` does
// not.
bool layer_uses_mask(const LayerUse& use);

// A mask (batch, steps) that x (batch, steps, ...) broadcasts with: in x's dtype, or in `dtype`.
ValueId mask_beside(Builder& builder, ValueId mask, ValueId x, DType dtype);
ValueId mask_beside(Builder& builder, ValueId mask, ValueId x);

}  // namespace meshtrain
