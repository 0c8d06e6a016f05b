// Cross-entropies, plain, focal and generalised. Formulas: Keras 3 losses/losses.py
// and the JAX backend's nn.py.
#include <cmath>

#include "config/precision.h"
#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/graph_parts.h"
#include "nn/head_loss.h"
#include "nn/loss_table.h"

namespace meshtrain {
namespace {

ValueId smoothed(Builder& b, ValueId y, double smoothing, double classes) {
  if (smoothing == 0) {
    return y;
  }
  return b.add(b.mul(y, 1 - smoothing), smoothing / classes);
}

ValueId smoothed_classes(Builder& b, LossArgs args, ValueId y, ValueId p) {
  return smoothed(b, y, args.number("label_smoothing"), static_cast<double>(b.shape(p).back()));
}

// Probabilities that are first made to sum to 1 and clipped, as Keras does.
ValueId clipped_probabilities(Builder& b, ValueId p, int64_t axis) {
  const ValueId sum = b.reduce_sum(p, {axis}, /*keepdims=*/true);
  return b.clamp(b.div(p, sum), kEpsilon, 1 - kEpsilon);
}

// ln of the class probabilities: of logits, or of probabilities.
ValueId log_probabilities(Builder& b, LossArgs args, ValueId p, int64_t axis) {
  return args.boolean("from_logits") ? log_softmax(b, p, {axis})
                                     : b.log(clipped_probabilities(b, p, axis));
}

// -y ln p - (1 - y) ln(1 - p), elementwise.
ValueId binary_terms(Builder& b, ValueId y, ValueId p) {
  const ValueId clipped = b.clamp(p, kEpsilon, 1 - kEpsilon);
  const ValueId yes = b.mul(y, b.log(clipped));
  return b.neg(b.add(yes, b.mul(one_minus(b, y), b.log(one_minus(b, clipped)))));
}

LossValues binary_crossentropy(Builder& b, LossArgs args, ValueId y_given, ValueId p) {
  const ValueId y = smoothed(b, y_given, args.number("label_smoothing"), 2);
  ValueId loss;
  if (args.boolean("from_logits")) {
    // -y ln s(x) - (1-y) ln s(-x), with -ln s(x) = softplus(-x).
    loss = b.add(b.mul(y, b.unary("softplus", b.neg(p))),
                 b.mul(one_minus(b, y), b.unary("softplus", p)));
  } else {
    loss = binary_terms(b, y, p);
  }
  return {b.reduce_mean(loss, {class_axis(b, args, p)})};
}

// p_t is of the predictions as they are, not of the clipped ones.
LossValues binary_focal_crossentropy(Builder& b, LossArgs args, ValueId y_given, ValueId p) {
  const ValueId y = smoothed(b, y_given, args.number("label_smoothing"), 2);
  if (args.boolean("from_logits")) {
    p = b.unary("sigmoid", p);
  }
  const ValueId not_y = one_minus(b, y);
  const ValueId p_t = b.add(b.mul(y, p), b.mul(not_y, one_minus(b, p)));
  const double gamma = args.number("gamma");
  const ValueId factor = b.binary("pow", one_minus(b, p_t), constant_like(b, p, gamma));
  ValueId loss = b.mul(factor, binary_terms(b, y, p));
  if (args.boolean("apply_class_balancing")) {
    const double alpha = args.number("alpha");
    loss = b.mul(loss, b.add(b.mul(y, alpha), b.mul(not_y, 1 - alpha)));
  }
  return {b.reduce_mean(loss, {class_axis(b, args, p)})};
}

LossValues categorical_crossentropy(Builder& b, LossArgs args, ValueId y_given, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const ValueId y = smoothed_classes(b, args, y_given, p);
  return {b.neg(b.reduce_sum(b.mul(y, log_probabilities(b, args, p, axis)), {axis}))};
}

// `alpha`: one number, or one for each class along `axis`.
ValueId class_factors(Builder& b, LossArgs args, ValueId like, int64_t axis) {
  if (!args.arg("alpha").is_list()) {
    return constant_like(b, like, args.number("alpha"));
  }
  const ValueId factors = vector_of(b, numbers_of(args.arg("alpha")), b.dtype(like));
  Shape shape(b.shape(like).size(), 1);
  shape[static_cast<size_t>(axis)] = b.shape(factors)[0];
  return b.reshape(factors, shape);
}

LossValues categorical_focal_crossentropy(Builder& b, LossArgs args, ValueId y_given, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const ValueId y = smoothed_classes(b, args, y_given, p);
  if (args.boolean("from_logits")) {
    p = softmax(b, p, {axis});
  }
  p = clipped_probabilities(b, p, axis);
  const double gamma = args.number("gamma");
  const ValueId factor = b.binary("pow", one_minus(b, p), constant_like(b, p, gamma));
  const ValueId terms = b.mul(factor, b.neg(b.mul(y, b.log(p))));
  return {b.reduce_sum(b.mul(terms, class_factors(b, args, p, axis)), {axis})};
}

// -ln of the probability of class `ids` along `axis`. The one-hot product lets the class dimension
// be sharded.
ValueId sparse_losses(Builder& b, LossArgs args, ValueId ids, ValueId p, int64_t axis) {
  const ValueId one_hot = b.one_hot(ids, b.shape(p)[axis], b.dtype(p));
  const ValueId target =
      move_axis(b, one_hot, b.shape(one_hot).size() - 1, static_cast<size_t>(axis));
  const ValueId log_p = log_probabilities(b, args, p, axis);
  return b.neg(b.reduce_sum(b.mul(target, log_p), {axis}));
}

// y: class ids, (...) or (..., 1).
LossValues sparse_categorical_crossentropy(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const ValueId ids = class_ids(b, y, p);
  const auto of_tokens =
      args.boolean("from_logits") && axis == last_axis(b, p) ? token_losses(b, p) : std::nullopt;
  LossValues out{of_tokens ? of_tokens->losses : sparse_losses(b, args, ids, p, axis)};
  if (args.has("ignore_class")) {
    const ValueId ignored =
        b.constant(static_cast<double>(args.integer("ignore_class")), DType::kInt32);
    out.mask = b.binary("ne", ids, ignored);
    out.values = b.select(out.mask, out.values, constant_like(b, out.values, 0));
  }
  return out;
}

// p^q for q in (0, 1], in at least float32. Next to 0 it is a line to 0: there the power's slope is
// infinite, and times a probability's own slope of 0 that would be NaN.
ValueId root(Builder& b, ValueId p, double q) {
  constexpr double kTiny = 1e-30;
  const ValueId x = b.cast(p, at_least_float32(b.dtype(p)));
  const ValueId is_tiny = b.binary("lt", x, constant_like(b, x, kTiny));
  const ValueId safe = b.select(is_tiny, constant_like(b, x, 1), x);
  const ValueId power = b.binary("pow", safe, constant_like(b, x, q));
  return b.cast(b.select(is_tiny, b.mul(x, std::pow(kTiny, q - 1)), power), b.dtype(p));
}

// (1 - p_y^q) / q (Zhang and Sabuncu 2018).
LossValues categorical_generalized_cross_entropy(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const double q = args.number("q");
  const ValueId target = b.one_hot(class_ids(b, y, p), b.shape(p).back(), b.dtype(p));
  const ValueId p_y = b.reduce_sum(b.mul(p, target), {last_axis(b, p)});
  return {b.div(one_minus(b, root(b, p_y, q)), q)};
}

}  // namespace

LossTable crossentropy_losses() {
  return {
      {"binarycrossentropy", binary_crossentropy, TargetKind::kLikeOutput, Expects::kProbabilities},
      {"binaryfocalcrossentropy", binary_focal_crossentropy, TargetKind::kLikeOutput,
       Expects::kProbabilities},
      {"categoricalcrossentropy", categorical_crossentropy, TargetKind::kLikeOutput,
       Expects::kProbabilities},
      {"categoricalfocalcrossentropy", categorical_focal_crossentropy, TargetKind::kLikeOutput,
       Expects::kProbabilities},
      {"sparsecategoricalcrossentropy", sparse_categorical_crossentropy, TargetKind::kClassIds,
       Expects::kProbabilities},
      {"categoricalgeneralizedcrossentropy", categorical_generalized_cross_entropy,
       TargetKind::kClassIds, Expects::kProbabilities}};
}

}  // namespace meshtrain
