#include "nn/masks.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/cells.h"
#include "nn/arguments.h"
#include "nn/graph_parts.h"

namespace meshtrain {
namespace {

constexpr std::string_view kPassing[] = {"Dense",
                                         "Activation",
                                         "ReLU",
                                         "LeakyReLU",
                                         "PReLU",
                                         "ELU",
                                         "Identity",
                                         "ActivityRegularization",
                                         "LayerNormalization",
                                         "BatchNormalization",
                                         "GroupNormalization",
                                         "UnitNormalization",
                                         "Dropout",
                                         "SpatialDropout1D",
                                         "SpatialDropout2D",
                                         "SpatialDropout3D",
                                         "AlphaDropout",
                                         "GaussianNoise",
                                         "GaussianDropout",
                                         "Rescaling",
                                         "Normalization",
                                         "MultiHeadAttention",
                                         "GroupQueryAttention",
                                         "Attention",
                                         "AdditiveAttention",
                                         "TransformerEncoder",
                                         "TransformerDecoder",
                                         "SparseMoE",
                                         "TimeDistributed",
                                         "SplitSteps"};
constexpr std::string_view kProjecting[] = {"MultiHeadAttention", "GroupQueryAttention"};
constexpr std::string_view kCombining[] = {"Add",     "Subtract", "Multiply",
                                           "Average", "Maximum",  "Minimum"};
constexpr std::string_view kProducing[] = {"Embedding", "ReversibleEmbedding", "Masking",
                                           "TokenAndPositionEmbedding"};

// The axis of Concatenate, counted from 0.
int64_t joined_axis(const Layer& layer, size_t rank) {
  return axis_in(layer.config()->integer("axis"), rank).value_or(0);
}

// Of a recurrent layer, or of that within a Bidirectional.
bool returns_sequences(const Layer& layer) {
  const ConfigObject& config = *layer.config();
  return layer.class_name == "Bidirectional"
             ? config.arg("layer").object().boolean("return_sequences")
             : config.boolean("return_sequences");
}

// Whether a layer that makes a mask makes one of steps.
bool has_steps(const Layer& layer, const Shape& input) {
  return layer.class_name == "Masking" || input.size() == 2;
}

// Steps that count for one of the inputs at least (Keras 3 layers/merging/base_merge.py).
ValueId any_mask(Builder& b, std::span<const ValueId> masks) {
  ValueId out = masks[0];
  for (size_t i = 1; i < masks.size(); ++i) {
    out = masks[i] == out ? out : b.binary("logical_or", out, masks[i]);
  }
  return out;
}

ValueId joined_masks(const Layer& layer, Builder& b, std::span<const ValueId> inputs,
                     std::span<const ValueId> masks) {
  const bool along_steps = joined_axis(layer, b.shape(inputs[0]).size()) == 1;
  std::vector<ValueId> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = b.shape(inputs[i]);
    parts.push_back(masks[i] != kNone ? masks[i]
                                      : b.constant(1, DType::kBool, {shape[0], shape[1]}));
  }
  if (along_steps) {
    return b.concat(parts, 1);
  }
  return any_mask(b, parts);
}

}  // namespace

MaskEffect mask_effect(std::string_view name) {
  return is_one_of(name, kPassing)                                  ? MaskEffect::kPass
         : is_one_of(name, kCombining)                              ? MaskEffect::kCombine
         : is_one_of(name, kProducing)                              ? MaskEffect::kProduce
         : name == "Concatenate"                                    ? MaskEffect::kConcatenate
         : is_recurrent_class(name)                                 ? MaskEffect::kSteps
         : name == "GlobalAveragePooling1D" || name == "MergeSteps" ? MaskEffect::kConsume
         : name == "Softmax"                                        ? MaskEffect::kRefuse
                                                                    : MaskEffect::kDrop;
}

bool propagates_mask(const Layer& layer, std::span<const Shape> inputs,
                     const std::vector<bool>& masked, Diagnostics& diagnostics) {
  const bool any = std::find(masked.begin(), masked.end(), true) != masked.end();
  const bool all = std::find(masked.begin(), masked.end(), false) == masked.end();
  const auto warn = [&](std::string_view why) {
    diagnostics
        .warning("W630", layer.loc,
                 fmt::format("layer `{}` ({}) drops the mask of its input: {}", layer.name,
                             layer.class_name, why))
        .help("layers behind it treat padding as data, as in Keras");
  };
  switch (mask_effect(layer.acting_class())) {
    case MaskEffect::kProduce:
      // Of logits that go to the loss, Setup says it: there weights may do what the mask did.
      if (any && !layer.makes_mask() && !layer.use.call_flag("reverse")) {
        warn("it makes no mask of its own");
      }
      if (layer.makes_mask() && !has_steps(layer, inputs[0])) {
        diagnostics
            .error("E120", layer.loc,
                   fmt::format("layer `{}` ({}) gets {}: `mask_zero` is for ids (batch, steps)",
                               layer.name, layer.class_name, shape_string(inputs[0])))
            .help("leave `mask_zero` out, or reshape the ids");
        return false;
      }
      return layer.makes_mask();
    case MaskEffect::kPass:
      if (any && is_one_of(layer.class_name, kProjecting) && inputs[0].size() > 3) {
        diagnostics
            .error("E120", layer.loc,
                   fmt::format("layer `{}` ({}) gets {} with a mask of steps: masks need inputs of "
                               "rank 3",
                               layer.name, layer.class_name, shape_string(inputs[0])))
            .help("reshape its inputs to (batch, steps, features)");
        return false;
      }
      return layer.makes_mask() ||
             (layer.masked_input() < masked.size() && masked[layer.masked_input()]);
    case MaskEffect::kCombine:
      if (any && !all) {
        warn("another input has none");
      }
      return all;
    case MaskEffect::kConcatenate:
      if (any && (inputs[0].size() < 2 || joined_axis(layer, inputs[0].size()) == 0)) {
        warn("it joins neither steps nor features");
        return false;
      }
      return any;
    case MaskEffect::kSteps:
      return masked[0] && returns_sequences(layer);
    case MaskEffect::kConsume:
      return false;
    case MaskEffect::kRefuse:
      if (any) {
        diagnostics
            .error("E120", layer.loc,
                   fmt::format("layer `{}` ({}) takes no mask of steps, and its input has one",
                               layer.name, layer.class_name))
            .help("write the softmax as `Activation: softmax`, which passes the mask on");
      }
      return false;
    case MaskEffect::kDrop:
      if (any) {
        warn("this class of layers has no masks");
      }
      return false;
  }
  return false;
}

ValueId propagate_mask(const Layer& layer, CallContext& context, std::span<const ValueId> inputs,
                       std::span<const ValueId> masks) {
  Builder& b = context.builder;
  const bool any = std::any_of(masks.begin(), masks.end(), [](ValueId m) { return m != kNone; });
  switch (mask_effect(layer.acting_class())) {
    case MaskEffect::kProduce:
      return layer.makes_mask() ? layer.make_mask(context, inputs) : kNone;
    case MaskEffect::kPass:
      return layer.makes_mask()                    ? layer.make_mask(context, inputs)
             : layer.masked_input() < masks.size() ? masks[layer.masked_input()]
                                                   : kNone;
    case MaskEffect::kSteps:
      return returns_sequences(layer) ? masks[0] : kNone;
    case MaskEffect::kCombine:
      return std::find(masks.begin(), masks.end(), kNone) == masks.end() ? any_mask(b, masks)
                                                                         : kNone;
    case MaskEffect::kConcatenate:
      return any && joined_axis(layer, b.shape(inputs[0]).size()) != 0
                 ? joined_masks(layer, b, inputs, masks)
                 : kNone;
    default:
      return kNone;
  }
}

bool layer_uses_mask(const LayerUse& use) {
  const ConfigValue* given = use.call_argument("use_mask");
  return given == nullptr || given->boolean();
}

// The two sequences of a Bidirectional that does not merge them.
bool shares_mask(const Layer& layer, size_t result) {
  return layer.class_name == "Bidirectional" && result == 0 && !layer.config()->has("merge_mode");
}

ValueId mask_beside(Builder& b, ValueId mask, ValueId x, DType dtype) {
  Shape shape(b.shape(x).size(), 1);
  shape[0] = b.shape(mask)[0];
  shape[1] = b.shape(mask)[1];
  return b.reshape(b.cast(mask, dtype), shape);
}
ValueId mask_beside(Builder& b, ValueId mask, ValueId x) {
  return mask_beside(b, mask, x, b.dtype(x));
}

}  // namespace meshtrain
