// Whether targets fit the outputs that a loss compares them with.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/loss_functions.h"

namespace meshtrain {
namespace {

bool same_size(int64_t a, int64_t b) {
  return a == b || a == kUnknownDim || b == kUnknownDim;
}

bool same_shape(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_size);
}

Shape without_axis(Shape shape, int64_t axis) {
  shape.erase(shape.begin() + normal_axis(axis, shape.size()));
  return shape;
}

// The axis of the classes; losses without that argument have them last.
int64_t axis_of_classes(const ConfigObject& loss) {
  return loss.has("axis") && loss.arg("axis").is_int() ? loss.integer("axis") : -1;
}

Diagnostic& target_error(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                         Diagnostics& diagnostics) {
  return diagnostics.error(
      "E123", loss.loc,
      fmt::format("{} cannot compare targets {} with outputs {}", loss.class_name,
                  shape_string(y_true), shape_string(y_pred)));
}

Shape without_last_one(Shape shape, size_t rank) {
  if (shape.size() == rank && shape.back() == 1) {
    shape.pop_back();
  }
  return shape;
}

// The output has axes that one target per sample lacks: those of an image or a sequence.
bool keeps_positions(const Shape& y_true, const Shape& y_pred) {
  return y_pred.size() > 2 && (y_true.size() == 1 || (y_true.size() == 2 && y_pred.size() > 3));
}

std::string flatten_help(const Shape& y_pred) {
  return fmt::format(
      "there is one target for each sample: put `Flatten`, or a global pooling such as "
      "`GlobalAveragePooling{}D`, before the last layers{}",
      std::clamp<size_t>(y_pred.size() - 2, 1, 3),
      y_pred.size() == 3 ? "; a recurrent layer gives its last step with `return_sequences: false`"
                         : "");
}

void check_class_ids(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                     Diagnostics& diagnostics) {
  const Shape wanted = without_axis(y_pred, axis_of_classes(loss));
  if (same_shape(without_last_one(y_true, y_pred.size()), wanted)) {
    return;
  }
  Diagnostic& problem = target_error(loss, y_true, y_pred, diagnostics);
  if (same_shape(y_true, y_pred)) {
    problem.help("these targets are one value per class: use categorical_crossentropy");
  } else if (keeps_positions(y_true, y_pred)) {
    problem.help(flatten_help(y_pred));
  } else {
    problem.help(
        fmt::format("it takes one class id per position: targets {}", shape_string(wanted)));
  }
}

void check_sample_labels(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                         Diagnostics& diagnostics) {
  if (y_pred.size() != 2) {
    target_error(loss, y_true, y_pred, diagnostics)
        .help("it takes one embedding per sample: an output of shape (None, size)");
  } else if (without_last_one(y_true, 2).size() != 1) {
    target_error(loss, y_true, y_pred, diagnostics)
        .help("it takes one label per sample: targets (None)");
  }
}

void check_label_sequence(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                          Diagnostics& diagnostics) {
  if (y_pred.size() != 3 || y_true.size() != 2) {
    target_error(loss, y_true, y_pred, diagnostics)
        .help(
            "it takes logits (None, steps, classes) and targets (None, labels), padded with 0, "
            "the id of the blank");
  } else if (y_true[1] < 1 || y_true[1] > y_pred[1]) {
    target_error(loss, y_true, y_pred, diagnostics)
        .help(fmt::format("{} labels need at least as many steps", y_true[1]));
  }
}

void explain_mismatch(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                      Diagnostic& problem) {
  const bool looks_sparse =
      !y_pred.empty() && y_pred.back() > 1 &&
      same_shape(without_last_one(y_true, y_pred.size()), without_axis(y_pred, -1));
  if (looks_sparse && is_classification(loss)) {
    problem.help(
        fmt::format("these targets are class ids: use {}, or `data: {{label: {{one_hot: {}}}}}`",
                    find_class(Category::kLoss, loss.spelled) != nullptr
                        ? "sparse_categorical_crossentropy"
                        : "sparse_categorical_accuracy or another sparse metric",
                    y_pred.back()));
  } else if (looks_sparse) {
    problem.help(
        fmt::format("for class ids write `data: {{label: {{one_hot: {}}}}}`; for one number "
                    "per sample let the last layer have 1 unit",
                    y_pred.back()));
  } else if (keeps_positions(y_true, y_pred)) {
    problem.help(flatten_help(y_pred));
  } else {
    problem.help(fmt::format("targets must have the output's shape {}", shape_string(y_pred)));
  }
}

// `axis` names dimensions of the output, each once.
bool check_axes(const ConfigObject& loss, const Shape& y_pred, Diagnostics& diagnostics) {
  const auto rank = static_cast<int64_t>(y_pred.size());
  std::vector<int64_t> seen;
  const bool has_axis = loss.has("axis");
  for (const int64_t axis : has_axis ? integers_of(loss.arg("axis")) : std::vector<int64_t>{-1}) {
    const int64_t dim = axis < 0 ? axis + rank : axis;
    if (dim < 0 || dim >= rank) {
      diagnostics
          .error("E123", has_axis ? loss.loc_of("axis") : loss.loc,
                 fmt::format("{} over axis {}: the output has shape {}", loss.class_name, axis,
                             shape_string(y_pred)))
          .help(rank == 0 ? "give the model an output with at least the batch"
                          : fmt::format("write an axis from {} to {}", -rank, rank - 1));
      return false;
    }
    if (dim == 0 && loss_targets(loss.class_name) == TargetKind::kClassIds) {
      diagnostics
          .error("E123", has_axis ? loss.loc_of("axis") : loss.loc,
                 fmt::format("{} over axis {}: of an output {} that is the batch, not the classes",
                             loss.class_name, axis, shape_string(y_pred)))
          .help(rank == 1   ? "give the model an output with an axis of classes"
                : rank == 2 ? "write `axis: -1`, the last"
                            : fmt::format("write an axis from 1 to {}", rank - 1));
      return false;
    }
    if (std::find(seen.begin(), seen.end(), dim) != seen.end()) {
      diagnostics
          .error("E123", loss.loc_of("axis"),
                 fmt::format("{} has axis {} twice", loss.class_name, axis))
          .help("name each only once");
      return false;
    }
    seen.push_back(dim);
  }
  return true;
}

void check_alpha(const ConfigObject& loss, const Shape& y_pred, Diagnostics& diagnostics) {
  if (!loss.has("alpha") || !loss.arg("alpha").is_list()) {
    return;
  }
  const size_t count = numbers_of(loss.arg("alpha")).size();
  const int64_t classes = num_classes(loss, y_pred);
  if (count != 1 && !same_size(static_cast<int64_t>(count), classes)) {
    diagnostics
        .error("E123", loss.loc_of("alpha"),
               fmt::format("`alpha` of {} has {} numbers; the output {} has {} classes",
                           loss.class_name, count, shape_string(y_pred), classes))
        .help("write one number for all classes, or one for each");
  }
}

void check_reduction(const ConfigObject& loss, Diagnostics& diagnostics) {
  const bool is_null = loss.args.contains("reduction") && !loss.has("reduction");
  if (is_null || string_or(loss, "reduction", "") == "none") {
    diagnostics
        .error(
            "E123", loss.loc_of("reduction"),
            fmt::format("{} without a reduction is no single number to minimise", loss.class_name))
        .help("write sum_over_batch_size, mean_with_sample_weight or sum");
  }
}

}  // namespace

void check_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                Diagnostics& diagnostics, const NamedShapes& outputs) {
  check_reduction(loss, diagnostics);
  if (!check_axes(loss, y_pred, diagnostics)) {
    return;
  }
  check_alpha(loss, y_pred, diagnostics);
  switch (loss_targets(loss.class_name)) {
    case TargetKind::kClassIds:
      check_class_ids(loss, y_true, y_pred, diagnostics);
      return;
    case TargetKind::kSampleLabels:
      check_sample_labels(loss, y_true, y_pred, diagnostics);
      return;
    case TargetKind::kLabelSequence:
      check_label_sequence(loss, y_true, y_pred, diagnostics);
      return;
    case TargetKind::kAny:
      check_lambda_loss(loss, y_true, y_pred, outputs, diagnostics);
      return;
    case TargetKind::kLikeOutput:
      break;
  }
  Shape y = y_true;
  Shape p = y_pred;
  to_same_rank(y, p);
  if (!same_shape(y, p)) {
    explain_mismatch(loss, y_true, y_pred, target_error(loss, y_true, y_pred, diagnostics));
  }
}

ConfigObject fitting_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred) {
  ConfigObject out = loss;
  if (loss.class_name == "crossentropy") {
    out.class_name = class_by_shapes("Crossentropy", y_true, y_pred);
  }
  return out;
}

Shape implied_target_shape(const ConfigObject& loss, const Shape& y_pred) {
  switch (loss_targets(loss.class_name)) {
    case TargetKind::kClassIds:
      return without_axis(y_pred, axis_of_classes(loss));
    case TargetKind::kSampleLabels:
      return Shape(y_pred.begin(), y_pred.begin() + 1);
    case TargetKind::kLabelSequence:
      return y_pred.size() < 2 ? y_pred : Shape(y_pred.begin(), y_pred.begin() + 2);
    case TargetKind::kAny:
    case TargetKind::kLikeOutput:
      break;
  }
  return y_pred;
}

bool loss_takes_class_ids(const ConfigObject& loss) {
  const TargetKind targets = loss_targets(loss.class_name);
  return targets == TargetKind::kClassIds || targets == TargetKind::kLabelSequence;
}

int64_t num_classes(const ConfigObject& loss, const Shape& y_pred) {
  return y_pred[static_cast<size_t>(normal_axis(axis_of_classes(loss), y_pred.size()))];
}

std::optional<int64_t> ignored_class(const ConfigObject& loss) {
  return loss.has("ignore_class") ? std::optional(loss.integer("ignore_class")) : std::nullopt;
}

std::optional<int64_t> known_classes(const ConfigObject& loss, const Shape& y_true,
                                     const Shape& y_pred) {
  std::optional<int64_t> classes;
  if (loss_targets(loss.class_name) == TargetKind::kClassIds) {
    classes = num_classes(loss, y_pred);
  } else if (name_key(loss.class_name).find("crossentropy") != std::string::npos &&
             (y_true.size() == 1 || y_true.back() == 1)) {
    classes = 2;
  } else if (loss_targets(loss.class_name) == TargetKind::kLikeOutput &&
             (y_true.size() == 2 || is_classification(loss)) && y_true.back() > 1) {
    classes = y_true.back();
  }
  return classes == kUnknownDim ? std::nullopt : classes;
}

bool tells_one_of(const ConfigObject& loss) {
  return loss_takes_class_ids(loss) ||
         name_key(loss.class_name).find("categorical") != std::string::npos;
}

bool is_classification(const ConfigObject& loss) {
  return loss_takes_class_ids(loss) ||
         name_key(loss.class_name).find("crossentropy") != std::string::npos;
}

}  // namespace meshtrain
