// The model of a draft for samples of one shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/rows.h"

namespace meshtrain {

// The number of samples of the largest class; nothing for labels that are no classes.
std::optional<int64_t> largest_class_of(const RowsPtr& labels);

// What targets of several numbers are: zeros and ones, one of these in each row or any number.
enum class DraftTargets : uint8_t { kNumbers, kOneHot, kMultiHot };
DraftTargets draft_targets(const RowsPtr& labels);

// What follows the hidden layers: lines of the last layers, and of `compile`.
struct OutputDraft {
  std::string layers, compile;
};
// Without a `label`, the shape of a target, the model learns its samples.
OutputDraft output_draft(const std::optional<Shape>& label, bool are_classes, const Shape& sample,
                         DraftTargets targets = DraftTargets::kNumbers);

// The sections `model` and `compile`. `is_bytes`: pixels or numbers from 0 to 255.
std::string model_draft(const Shape& sample, bool is_image, bool is_bytes, const OutputDraft& head,
                        bool is_own_target);

}  // namespace meshtrain
