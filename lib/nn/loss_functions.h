// The functions behind losses and metrics: one value per sample (or per position), not reduced.
#pragma once

#include <string>
#include <string_view>

#include "config/object.h"
#include "ir/builder.h"
#include "nn/metric.h"

namespace meshtrain {

struct LossValues {
  ValueId values = kNone;  // y_pred's shape without the reduced axes
  ValueId mask = kNone;    // bool, of the same shape: false where the value does not count
};

enum class TargetKind {
  kLikeOutput,     // the output's shape, after rank repair
  kClassIds,       // one class per position: the output's shape without the axis of classes
  kSampleLabels,   // one label per sample, whatever the output's width
  kAny,            // whatever an expression takes
  kLabelSequence,  // (batch, labels) beside outputs (batch, steps, classes)
};

// The kind of predictions that a loss function expects; `from_logits` turns probabilities to
// logits.
enum class Expects { kAnything, kProbabilities, kRates, kLogits };

// Whether `class_name` ("MeanSquaredError") is a loss function of the table.
bool is_loss_function(std::string_view class_name);
TargetKind loss_targets(std::string_view class_name);
Expects loss_expects(std::string_view class_name);
// Computed in `dtype`; targets of any dtype are cast as Keras does. `args` may be null (defaults).
LossValues loss_values(Builder& b, std::string_view class_name, const ConfigObject* args,
                       ValueId y_true, ValueId y_pred, DType dtype);

// Reports (E132, E123) an expression that does not take these shapes, or does not give one value,
// or some, per sample. Shapes with the batch.
void check_lambda_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                       const NamedShapes& outputs, Diagnostics& diagnostics);

// Keras' rule for the words `accuracy` and `crossentropy` (trainers/compile_utils.py):
// "BinaryAccuracy" of "Accuracy". Shapes with the batch.
std::string class_by_shapes(const std::string& what, const Shape& y_true, const Shape& y_pred);

// Keras' rank repair: ranks that differ by one where the longer ends in 1. A vector gets a last
// dimension of 1; otherwise the longer one loses it.
void to_same_rank(Builder& b, ValueId& x, ValueId& y);
// The same on shapes.
void to_same_rank(Shape& x, Shape& y);

// Sizes that are not known become those of `like` at the same place: steps, which both have.
Shape with_known_sizes(Shape shape, const Shape& like);

// Class ids (...) or (..., 1) beside predictions (..., classes), without the 1.
ValueId squeezed_ids(Builder& b, ValueId y, ValueId p);

// A mask (batch, steps), bool, laid out over `values`: (B, T) beside (B, T, H) covers the same
// steps for each. Values without the steps count where any step does.
ValueId aligned_mask(Builder& b, ValueId mask, ValueId values);
// A weight of lower rank than `values` applies to its first dimensions: (B,) beside (B, T) becomes
// (B, 1), after the rank repair above.
void align_weight(Builder& b, ValueId& values, ValueId& weight);

// total / count, 0 where count is 0; scalars.
ValueId divide_no_nan(Builder& b, ValueId total, ValueId count);

}  // namespace meshtrain
