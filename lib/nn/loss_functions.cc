// Formulas: keras-semantics; Keras 3 losses/losses.py and the JAX backend's nn.py.
#include "nn/loss_functions.h"

#include <map>
#include <string>

#include "nn/activations.h"
#include "nn/arguments.h"

namespace meshtrain {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

using Args = const ConfigObject*;
using LossFunction = LossValues (*)(Builder&, Args, ValueId y, ValueId p);

int64_t last_axis(Builder& b, ValueId x) {
  return static_cast<int64_t>(b.shape(x).size()) - 1;
}

ValueId mean_last(Builder& b, ValueId x) {
  return b.shape(x).empty() ? x : b.reduce_mean(x, {last_axis(b, x)});
}

ValueId constant_like(Builder& b, ValueId x, double value) {
  return b.constant(value, b.dtype(x));
}

// Axis of the classes, counted from 0.
int64_t class_axis(Builder& b, Args args, ValueId p) {
  const int64_t axis = integer_or(args, "axis", -1);
  return axis < 0 ? axis + static_cast<int64_t>(b.shape(p).size()) : axis;
}

ValueId smoothed(Builder& b, ValueId y, double smoothing, double classes) {
  if (smoothing == 0) {
    return y;
  }
  return b.add(b.mul(y, 1 - smoothing), smoothing / classes);
}

// ln of the class probabilities: of logits, or of probabilities that are first made to sum to 1
// and clipped, as Keras does.
ValueId log_probabilities(Builder& b, Args args, ValueId p, int64_t axis) {
  if (boolean_or(args, "from_logits", false)) {
    return log_softmax(b, p, {axis});
  }
  const ValueId sum = b.reduce_sum(p, {axis}, /*keepdims=*/true);
  return b.log(b.clamp(b.div(p, sum), kEpsilon, 1 - kEpsilon));
}

ValueId mean_squared_error(Builder& b, ValueId y, ValueId p) {
  return mean_last(b, b.square(b.sub(y, p)));
}

LossValues huber(Builder& b, Args args, ValueId y, ValueId p) {
  const double delta = number_or(args, "delta", 1);
  const ValueId error = b.unary("abs", b.sub(p, y));
  const ValueId small = b.mul(b.square(error), 0.5);
  const ValueId large = b.sub(b.mul(error, delta), 0.5 * delta * delta);
  const ValueId is_small = b.binary("le", error, constant_like(b, error, delta));
  return {mean_last(b, b.select(is_small, small, large))};
}

LossValues binary_crossentropy(Builder& b, Args args, ValueId y_given, ValueId p) {
  const ValueId y = smoothed(b, y_given, number_or(args, "label_smoothing", 0), 2);
  const ValueId not_y = b.sub(constant_like(b, y, 1), y);
  const int64_t axis = class_axis(b, args, p);
  ValueId loss;
  if (boolean_or(args, "from_logits", false)) {
    // -y ln s(x) - (1-y) ln s(-x), with -ln s(x) = softplus(-x).
    loss = b.add(b.mul(y, b.unary("softplus", b.neg(p))), b.mul(not_y, b.unary("softplus", p)));
  } else {
    const ValueId clipped = b.clamp(p, kEpsilon, 1 - kEpsilon);
    const ValueId not_p = b.sub(constant_like(b, p, 1), clipped);
    loss = b.neg(b.add(b.mul(y, b.log(clipped)), b.mul(not_y, b.log(not_p))));
  }
  return {b.reduce_mean(loss, {axis})};
}

LossValues categorical_crossentropy(Builder& b, Args args, ValueId y_given, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const auto classes = static_cast<double>(b.shape(p)[axis]);
  const ValueId y = smoothed(b, y_given, number_or(args, "label_smoothing", 0), classes);
  return {b.neg(b.reduce_sum(b.mul(y, log_probabilities(b, args, p, axis)), {axis}))};
}

// y: class ids, (...) or (..., 1). The one-hot product lets the class dimension be sharded.
LossValues sparse_categorical_crossentropy(Builder& b, Args args, ValueId y, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const int64_t last = last_axis(b, p);
  if (b.shape(y).size() == b.shape(p).size()) {
    y = b.squeeze(y, static_cast<int>(b.shape(y).size()) - 1);
  }
  const ValueId ids = b.cast(y, DType::kInt32);
  ValueId target = b.one_hot(ids, b.shape(p)[axis], b.dtype(p));
  if (axis != last) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < last; ++i) {
      if (i == axis) {
        order.push_back(last);
      }
      order.push_back(i);
    }
    target = b.transpose(target, order);
  }
  const ValueId log_p = log_probabilities(b, args, p, axis);
  LossValues out{b.neg(b.reduce_sum(b.mul(target, log_p), {axis}))};
  if (args != nullptr && args->has("ignore_class")) {
    const ValueId ignored =
        b.constant(static_cast<double>(args->integer("ignore_class")), DType::kInt32);
    out.mask = b.binary("ne", ids, ignored);
    out.values = b.select(out.mask, out.values, constant_like(b, out.values, 0));
  }
  return out;
}

ValueId l2_normalized(Builder& b, ValueId x, int64_t axis) {
  const ValueId sum = b.reduce_sum(b.square(x), {axis}, /*keepdims=*/true);
  return b.mul(x, b.unary("rsqrt", b.maximum(sum, kEpsilon * kEpsilon)));
}

LossValues cosine_similarity(Builder& b, Args args, ValueId y, ValueId p) {
  const int64_t axis = class_axis(b, args, p);
  const ValueId product = b.mul(l2_normalized(b, y, axis), l2_normalized(b, p, axis));
  return {b.neg(b.reduce_sum(product, {axis}))};
}

// Targets that are all 0 or 1 become -1 or 1.
ValueId to_signs(Builder& b, ValueId y) {
  const ValueId one = constant_like(b, y, 1);
  const ValueId zero = constant_like(b, y, 0);
  const ValueId is_binary = b.binary("logical_or", b.binary("eq", y, zero), b.binary("eq", y, one));
  const ValueId outside = b.select(is_binary, zero, one);
  const ValueId all_binary = b.binary("eq", b.reduce_sum_all(outside), zero);
  return b.select(all_binary, b.sub(b.mul(y, 2.0), 1.0), y);
}

ValueId hinge_terms(Builder& b, ValueId y, ValueId p) {
  const ValueId product = b.mul(to_signs(b, y), p);
  return b.maximum(b.sub(constant_like(b, p, 1), product), 0.0);
}

LossValues categorical_hinge(Builder& b, Args, ValueId y, ValueId p) {
  const int64_t axis = last_axis(b, p);
  const ValueId right = b.reduce_sum(b.mul(y, p), {axis});
  const ValueId wrong = b.reduce_max(b.mul(b.sub(constant_like(b, y, 1), y), p), {axis});
  return {b.maximum(b.add(b.sub(wrong, right), 1.0), 0.0)};
}

ValueId log1_of_positive(Builder& b, ValueId x) {
  return b.unary("log1p", b.maximum(x, kEpsilon));
}

LossValues kl_divergence(Builder& b, Args, ValueId y, ValueId p) {
  const ValueId clipped_y = b.clamp(y, kEpsilon, 1);
  const ValueId clipped_p = b.clamp(p, kEpsilon, 1);
  const ValueId ratio = b.log(b.div(clipped_y, clipped_p));
  return {b.reduce_sum(b.mul(clipped_y, ratio), {last_axis(b, p)})};
}

const std::map<std::string, LossFunction, std::less<>>& loss_table() {
  static const std::map<std::string, LossFunction, std::less<>> kTable = {
      {"meansquarederror",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         return {mean_squared_error(b, y, p)};
       }},
      {"meanabsoluteerror",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         return {mean_last(b, b.unary("abs", b.sub(y, p)))};
       }},
      {"meanabsolutepercentageerror",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         const ValueId scale = b.maximum(b.unary("abs", y), kEpsilon);
         const ValueId ratio = b.unary("abs", b.div(b.sub(y, p), scale));
         return {b.mul(mean_last(b, ratio), 100.0)};
       }},
      {"meansquaredlogarithmicerror",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         return {mean_squared_error(b, log1_of_positive(b, y), log1_of_positive(b, p))};
       }},
      {"logcosh",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         const ValueId e = b.sub(p, y);
         const ValueId tail = b.unary("softplus", b.mul(e, -2.0));
         return {mean_last(b, b.sub(b.add(e, tail), 0.69314718055994530942))};
       }},
      {"poisson",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         return {mean_last(b, b.sub(p, b.mul(y, b.log(b.add(p, kEpsilon)))))};
       }},
      {"hinge",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         return {mean_last(b, hinge_terms(b, y, p))};
       }},
      {"squaredhinge",
       [](Builder& b, Args, ValueId y, ValueId p) -> LossValues {
         return {mean_last(b, b.square(hinge_terms(b, y, p)))};
       }},
      {"huber", huber},
      {"binarycrossentropy", binary_crossentropy},
      {"categoricalcrossentropy", categorical_crossentropy},
      {"sparsecategoricalcrossentropy", sparse_categorical_crossentropy},
      {"cosinesimilarity", cosine_similarity},
      {"categoricalhinge", categorical_hinge},
      {"kldivergence", kl_divergence}};
  return kTable;
}

// Which of the two gets an inserted or loses its last dimension.
struct RankRepair {
  bool expand_x = false, expand_y = false, squeeze_x = false, squeeze_y = false;
};

RankRepair rank_repair(const Shape& x, const Shape& y) {
  RankRepair repair;
  if (x.size() == y.size() + 1 && x.back() == 1) {
    (y.size() == 1 ? repair.expand_y : repair.squeeze_x) = true;
  } else if (y.size() == x.size() + 1 && y.back() == 1) {
    (x.size() == 1 ? repair.expand_x : repair.squeeze_y) = true;
  }
  return repair;
}

}  // namespace

bool is_loss_function(std::string_view class_name) {
  return loss_table().contains(name_key(class_name));
}

LossValues loss_values(Builder& b, std::string_view class_name, const ConfigObject* args,
                       ValueId y_true, ValueId y_pred, DType dtype) {
  const std::string key = name_key(class_name);
  const auto found = loss_table().find(key);
  MESHTRAIN_CHECK(found != loss_table().end(), "no loss function {}", class_name);
  ValueId y = y_true;
  ValueId p = b.cast(y_pred, dtype);
  if (key != "sparsecategoricalcrossentropy") {
    y = b.cast(y, dtype);
    to_same_rank(b, y, p);
  }
  return found->second(b, args, y, p);
}

void to_same_rank(Builder& b, ValueId& x, ValueId& y) {
  const RankRepair repair = rank_repair(b.shape(x), b.shape(y));
  const int x_rank = static_cast<int>(b.shape(x).size());
  const int y_rank = static_cast<int>(b.shape(y).size());
  x = repair.expand_x ? b.expand_dims(x, x_rank) : repair.squeeze_x ? b.squeeze(x, x_rank - 1) : x;
  y = repair.expand_y ? b.expand_dims(y, y_rank) : repair.squeeze_y ? b.squeeze(y, y_rank - 1) : y;
}

void to_same_rank(Shape& x, Shape& y) {
  const RankRepair repair = rank_repair(x, y);
  for (auto [shape, expand, squeeze] : {std::tuple(&x, repair.expand_x, repair.squeeze_x),
                                        std::tuple(&y, repair.expand_y, repair.squeeze_y)}) {
    if (expand) {
      shape->push_back(1);
    } else if (squeeze) {
      shape->pop_back();
    }
  }
}

void align_weight(Builder& b, ValueId& values, ValueId& weight) {
  to_same_rank(b, values, weight);
  while (b.shape(weight).size() < b.shape(values).size() && !b.shape(weight).empty()) {
    weight = b.expand_dims(weight, static_cast<int>(b.shape(weight).size()));
  }
}

ValueId divide_no_nan(Builder& b, ValueId total, ValueId count) {
  const ValueId zero = constant_like(b, total, 0);
  const ValueId is_zero = b.binary("eq", count, zero);
  const ValueId safe = b.select(is_zero, constant_like(b, total, 1), count);
  return b.select(is_zero, zero, b.div(total, safe));
}

}  // namespace meshtrain
