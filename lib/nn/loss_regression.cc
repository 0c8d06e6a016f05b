// Errors, similarity and hinges. Formulas: Keras 3 losses/losses.py.
#include "nn/arguments.h"
#include "nn/loss_table.h"

namespace meshtrain {
namespace {

LossValues mean_squared_error(Builder& b, LossArgs, ValueId y, ValueId p) {
  return {mean_last(b, b.square(b.sub(y, p)))};
}

LossValues mean_absolute_error(Builder& b, LossArgs, ValueId y, ValueId p) {
  return {mean_last(b, b.unary("abs", b.sub(y, p)))};
}

LossValues mean_absolute_percentage_error(Builder& b, LossArgs, ValueId y, ValueId p) {
  const ValueId scale = b.maximum(b.unary("abs", y), kEpsilon);
  return {b.mul(mean_last(b, b.unary("abs", b.div(b.sub(y, p), scale))), 100.0)};
}

LossValues mean_squared_logarithmic_error(Builder& b, LossArgs, ValueId y, ValueId p) {
  const auto log1 = [&](ValueId x) { return b.unary("log1p", b.maximum(x, kEpsilon)); };
  return {mean_last(b, b.square(b.sub(log1(p), log1(y))))};
}

LossValues huber(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const double delta = args.number("delta");
  const ValueId error = b.unary("abs", b.sub(p, y));
  const ValueId small = b.mul(b.square(error), 0.5);
  const ValueId large = b.sub(b.mul(error, delta), 0.5 * delta * delta);
  const ValueId is_small = b.binary("le", error, constant_like(b, error, delta));
  return {mean_last(b, b.select(is_small, small, large))};
}

LossValues log_cosh(Builder& b, LossArgs, ValueId y, ValueId p) {
  constexpr double kLn2 = 0.69314718055994530942;
  const ValueId error = b.sub(p, y);
  const ValueId tail = b.unary("softplus", b.mul(error, -2.0));
  return {mean_last(b, b.sub(b.add(error, tail), kLn2))};
}

LossValues poisson(Builder& b, LossArgs, ValueId y, ValueId p) {
  return {mean_last(b, b.sub(p, b.mul(y, b.log(b.add(p, kEpsilon)))))};
}

LossValues kl_divergence(Builder& b, LossArgs, ValueId y, ValueId p) {
  const ValueId clipped_y = b.clamp(y, kEpsilon, 1);
  const ValueId clipped_p = b.clamp(p, kEpsilon, 1);
  const ValueId ratio = b.log(b.div(clipped_y, clipped_p));
  return {b.reduce_sum(b.mul(clipped_y, ratio), {last_axis(b, p)})};
}

LossValues cosine_similarity(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const ValueId product = b.mul(l2_normalized(b, y, axis), l2_normalized(b, p, axis));
  return {b.neg(b.reduce_sum(product, {axis}))};
}

// Targets that are all 0 or 1, in the whole batch, become -1 or 1.
ValueId to_signs(Builder& b, ValueId y) {
  const ValueId one = constant_like(b, y, 1);
  const ValueId zero = constant_like(b, y, 0);
  const ValueId is_binary = b.binary("logical_or", b.binary("eq", y, zero), b.binary("eq", y, one));
  const ValueId outside = b.select(is_binary, zero, one);
  const ValueId all_binary = b.binary("eq", b.reduce_sum_all(outside), zero);
  return b.select(all_binary, b.sub(b.mul(y, 2.0), 1.0), y);
}

ValueId hinge_terms(Builder& b, ValueId y, ValueId p) {
  return b.maximum(one_minus(b, b.mul(to_signs(b, y), p)), 0.0);
}

LossValues hinge(Builder& b, LossArgs, ValueId y, ValueId p) {
  return {mean_last(b, hinge_terms(b, y, p))};
}

LossValues squared_hinge(Builder& b, LossArgs, ValueId y, ValueId p) {
  return {mean_last(b, b.square(hinge_terms(b, y, p)))};
}

LossValues categorical_hinge(Builder& b, LossArgs, ValueId y, ValueId p) {
  const int64_t axis = last_axis(b, p);
  const ValueId right = b.reduce_sum(b.mul(y, p), {axis});
  const ValueId wrong = b.reduce_max(b.mul(one_minus(b, y), p), {axis});
  return {b.maximum(b.add(b.sub(wrong, right), 1.0), 0.0)};
}

}  // namespace

LossTable regression_losses() {
  return {{"meansquarederror", mean_squared_error},
          {"meanabsoluteerror", mean_absolute_error},
          {"meanabsolutepercentageerror", mean_absolute_percentage_error},
          {"meansquaredlogarithmicerror", mean_squared_logarithmic_error},
          {"huber", huber},
          {"logcosh", log_cosh},
          {"poisson", poisson, TargetKind::kLikeOutput, Expects::kRates},
          {"kldivergence", kl_divergence, TargetKind::kLikeOutput, Expects::kProbabilities},
          {"cosinesimilarity", cosine_similarity},
          {"hinge", hinge},
          {"squaredhinge", squared_hinge},
          {"categoricalhinge", categorical_hinge}};
}

}  // namespace meshtrain
