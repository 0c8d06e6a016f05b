// Losses of `compile`: reduction, sample weights and shape checks. Source: Keras 3 losses/loss.py.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/loss_functions.h"

namespace meshtrain {
namespace {

bool is_sparse(std::string_view class_name) {
  return name_key(class_name) == "sparsecategoricalcrossentropy";
}

bool is_categorical(std::string_view class_name) {
  return name_key(class_name) == "categoricalcrossentropy";
}

std::string reduction_of(const ConfigObject& loss) {
  const std::string reduction = string_or(&loss, "reduction", "sum_over_batch_size");
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

bool same_size(int64_t a, int64_t b) {
  return a == b || a == kUnknownDim || b == kUnknownDim;
}

bool same_shape(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_size);
}

Shape without_axis(Shape shape, int64_t axis) {
  shape.erase(shape.begin() + (axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis));
  return shape;
}

Diagnostic& target_error(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                         Diagnostics& diagnostics) {
  return diagnostics.error(
      "E123", loss.loc,
      fmt::format("{} cannot compare targets {} with outputs {}", loss.class_name,
                  shape_string(y_true), shape_string(y_pred)));
}

void check_sparse(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred, int64_t axis,
                  Diagnostics& diagnostics) {
  Shape ids = y_true;
  if (ids.size() == y_pred.size() && ids.back() == 1) {
    ids.pop_back();
  }
  if (same_shape(ids, without_axis(y_pred, axis))) {
    return;
  }
  Diagnostic& problem = target_error(loss, y_true, y_pred, diagnostics);
  if (same_shape(y_true, y_pred)) {
    problem.help("these targets are one value per class: use categorical_crossentropy");
  } else {
    problem.help(fmt::format("it takes one class id per position: targets {}",
                             shape_string(without_axis(y_pred, axis))));
  }
}

void explain_mismatch(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                      Diagnostic& problem) {
  Shape ids = y_true;
  if (!ids.empty() && ids.size() == y_pred.size() && ids.back() == 1) {
    ids.pop_back();
  }
  const bool looks_sparse =
      !y_pred.empty() && y_pred.back() > 1 && same_shape(ids, without_axis(y_pred, -1));
  if (looks_sparse && is_classification(loss)) {
    problem.help(
        fmt::format("these targets are class ids: use sparse_categorical_crossentropy, or "
                    "`data: {{label: {{one_hot: {}}}}}`",
                    y_pred.back()));
  } else if (looks_sparse) {
    problem.help(
        fmt::format("for class ids write `data: {{label: {{one_hot: {}}}}}`; for one number "
                    "per sample let the last layer have 1 unit",
                    y_pred.back()));
  } else {
    problem.help(fmt::format("targets must have the output's shape {}", shape_string(y_pred)));
  }
}

}  // namespace

ValueId add_loss(Builder& b, const ConfigObject& loss, ValueId y_true, ValueId y_pred,
                 ValueId sample_weight) {
  const Builder::Scope scope = b.scope("loss");
  const DType dtype =
      loss.has("dtype") ? parse_dtype(loss.string("dtype")).value() : b.dtype(y_pred);
  const std::string reduction = reduction_of(loss);
  auto [values, mask] = loss_values(b, loss.class_name, &loss, y_true, y_pred, dtype);

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

void check_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                Diagnostics& diagnostics) {
  const std::string reduction = reduction_of(loss);
  if (reduction == "none" || (loss.args.contains("reduction") && !loss.has("reduction"))) {
    diagnostics
        .error(
            "E123", loss.loc_of("reduction"),
            fmt::format("{} without a reduction is no single number to minimise", loss.class_name))
        .help("write sum_over_batch_size, mean_with_sample_weight or sum");
  }
  const int64_t axis = integer_or(&loss, "axis", -1);
  const auto rank = static_cast<int64_t>(y_pred.size());
  if (rank == 0 || axis < -rank || axis >= rank) {
    diagnostics.error("E123", loss.loc,
                      fmt::format("{} over axis {}: the output has shape {}", loss.class_name, axis,
                                  shape_string(y_pred)));
    return;
  }
  if (is_sparse(loss.class_name)) {
    check_sparse(loss, y_true, y_pred, axis, diagnostics);
    return;
  }
  Shape y = y_true;
  Shape p = y_pred;
  to_same_rank(y, p);
  if (!same_shape(y, p)) {
    explain_mismatch(loss, y_true, y_pred, target_error(loss, y_true, y_pred, diagnostics));
  }
}

Shape implied_target_shape(const ConfigObject& loss, const Shape& y_pred) {
  return is_sparse(loss.class_name) ? without_axis(y_pred, integer_or(&loss, "axis", -1)) : y_pred;
}

bool loss_takes_class_ids(const ConfigObject& loss) {
  return is_sparse(loss.class_name);
}

bool is_classification(const ConfigObject& loss) {
  return is_sparse(loss.class_name) || is_categorical(loss.class_name) ||
         name_key(loss.class_name) == "binarycrossentropy";
}

}  // namespace meshtrain
