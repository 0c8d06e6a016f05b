// Losses of `compile`: reduction, sample weights and shape checks. Source: Keras 3 losses/loss.py.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/loss_functions.h"
#include "nn/roles.h"

namespace meshtrain {
namespace {

std::string reduction_of(const ConfigObject& loss) {
  const std::string reduction = string_or(loss, "reduction", "sum_over_batch_size");
  return reduction == "mean" ? "sum_over_batch_size" : reduction;
}

// Weights that make the mean over all positions one over the valid positions.
ValueId mask_weights(Builder& b, ValueId mask, DType dtype, const std::string& reduction) {
  const ValueId valid = b.cast(mask, dtype);
  if (reduction != "sum_over_batch_size") {
    return valid;
  }
  const auto total = static_cast<double>(num_elements(b.shape(mask)));
  return b.mul(valid, divide_no_nan(b, b.constant(total, dtype), b.reduce_sum_all(valid)));
}

}  // namespace

ValueId add_loss(Builder& b, const ConfigObject& loss, ValueId y_true, ValueId y_pred,
                 ValueId sample_weight, ValueId mask_of_output) {
  const Builder::Scope scope = b.scope("loss");
  const DType dtype =
      loss.has("dtype") ? parse_dtype(loss.string("dtype")).value() : b.dtype(y_pred);
  const std::string reduction = reduction_of(loss);
  auto [values, mask] = loss_values(b, loss.class_name, &loss, y_true, y_pred, dtype);
  if (mask_of_output != kNone) {
    mask = both_masks(b, mask, aligned_mask(b, mask_of_output, values));
  }

  ValueId weight = sample_weight == kNone ? kNone : b.cast(sample_weight, dtype);
  if (mask != kNone) {
    ValueId mask_weight = mask_weights(b, mask, dtype, reduction);
    if (weight != kNone) {
      align_weight(b, mask_weight, weight);
      mask_weight = b.mul(weight, mask_weight);
    }
    weight = mask_weight;
  }
  if (weight != kNone) {
    align_weight(b, values, weight);
    values = b.mul(values, weight);
  }
  if (b.shape(values).empty()) {
    return values;
  }
  const ValueId total = b.reduce_sum_all(values);
  if (reduction == "sum") {
    return total;
  }
  if (reduction == "mean_with_sample_weight" && weight != kNone) {
    return divide_no_nan(b, total, b.reduce_sum_all(weight));
  }
  const int64_t count = num_elements(b.shape(values));
  return count == 0 ? total : b.div(total, static_cast<double>(count));
}

}  // namespace meshtrain
