// Normalizations, attention, cross-entropies and classes as operations. Source: Keras 3.15
// ops/nn.py, ops/math.py.
#include <cmath>

#include "nn/arguments.h"
#include "nn/graph_parts.h"
#include "nn/loss_functions.h"
#include "nn/operations.h"
#include "nn/roles.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

bool is_absent(const Operand& operand) {
  return !operand.is_tensor() && !operand.is_list &&
         std::holds_alternative<std::monostate>(operand.constant.data);
}

// An operand that may be left out, in the dtype of `like`; kNone where it is.
ValueId optional_operand(Context& c, size_t i, ValueId like) {
  return is_absent(c.operands[i]) ? kNone : c.b.cast(c.tensor(i, c.b.dtype(like)), c.b.dtype(like));
}

double epsilon_of(Context& c) {
  return c.is_null("epsilon") ? kEpsilon : c.number("epsilon");
}

// In at least float32, and in its own type again.
template <class F>
ValueId in_wide(Context& c, ValueId x, const F& function) {
  const DType own = c.b.dtype(x);
  return c.b.cast(function(c.b.cast(x, at_least_float32(own))), own);
}

// gamma and beta have the sizes of the axes, which the others broadcast over.
ValueId layer_normalization(Context& c) {
  return in_wide(c, c.floating(0), [&](ValueId x) {
    const Shape shape = c.b.shape(x);
    const std::vector<int64_t> axes = c.axes("axis", shape.size());
    Shape spread(shape.size(), 1);
    for (const int64_t axis : axes) {
      spread[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
    }
    const auto spread_operand = [&](size_t i) {
      const ValueId value = optional_operand(c, i, x);
      if (value != kNone && num_elements(c.b.shape(value)) != num_elements(spread)) {
        operation_error(fmt::format("gamma and beta have {} numbers, not {}", num_elements(spread),
                                    shape_string(c.b.shape(value))));
      }
      return value == kNone ? kNone : c.b.reshape(value, spread);
    };
    const ValueId gamma = spread_operand(1), beta = spread_operand(2);
    ValueId y = standardized(c.b, x, axes, epsilon_of(c));
    y = gamma == kNone ? y : c.b.mul(y, gamma);
    return beta == kNone ? y : c.b.add(y, beta);
  });
}

ValueId rms_normalization(Context& c) {
  return in_wide(c, c.floating(0), [&](ValueId x) {
    const ValueId mean = c.b.reduce_mean(c.b.square(x), c.axes("axis", c.rank(x)), true);
    const ValueId y = c.b.mul(x, c.b.unary("rsqrt", c.b.add(mean, epsilon_of(c))));
    const ValueId scale = optional_operand(c, 1, x);
    if (scale == kNone) {
      return y;
    }
    check_broadcast(c.b, {y, scale});
    return c.b.mul(y, scale);
  });
}

// The mean (part 0) and the variance (1).
ValueId moments(Context& c) {
  if (c.part < -2 || c.part > 1) {
    operation_error("it gives a mean, [0], and a variance, [1]");
  }
  return in_wide(c, c.floating(0), [&](ValueId x) {
    const std::vector<int64_t> axes = c.axes("axes", c.rank(x));
    const bool keepdims = c.boolean("keepdims"), is_mean = c.part % 2 == 0;
    const ValueId centred =
        is_mean ? x : c.b.square(c.b.sub(x, c.b.reduce_mean(x, axes, /*keepdims=*/true)));
    return c.b.reduce_mean(centred, axes, keepdims);
  });
}

// --- attention -----------------------------------------------------------------------------------

// bool (B or 1, H or 1, T, S); kNone where there is none.
ValueId attention_mask(Context& c, const Shape& scores) {
  if (is_absent(c.operands[4])) {
    return kNone;
  }
  ValueId mask = c.tensor(4, DType::kBool);
  mask = c.b.dtype(mask) == DType::kBool ? mask : nonzero_mask(c.b, mask);
  if (!broadcasts_to(c.b.shape(mask), scores)) {
    operation_error(
        fmt::format("the mask {} does not broadcast to {}: batch, heads, steps of the "
                    "query, steps of the key",
                    shape_string(c.b.shape(mask)), shape_string(scores)));
  }
  while (c.rank(mask) < 4) {
    mask = c.b.expand_dims(mask, 0);
  }
  Shape full = c.b.shape(mask);
  full[2] = scores[2];
  full[3] = scores[3];
  return c.b.broadcast_to(mask, full);
}

// With a bias the scores are an array; without it no array of that size exists.
ValueId biased_attention(Context& c, const std::vector<ValueId>& x, ValueId bias, ValueId mask,
                         const Shape& scores_shape, double scale, bool causal) {
  Builder& b = c.b;
  const ValueId products = b.mul(b.einsum("bthd,bshd->bhts", {x[0], x[1]}), scale);
  const ValueId scores = b.add(products, broadcast_operand(b, bias, scores_shape));
  ValueId allowed = mask;
  if (causal) {
    const Shape pair = {scores_shape[2], scores_shape[3]};
    const ValueId before =
        b.binary("ge", b.iota(pair, 0, DType::kInt32), b.iota(pair, 1, DType::kInt32));
    allowed = mask == kNone ? before : b.binary("logical_and", mask, before);
  }
  const ValueId weights = masked_softmax(b, scores, allowed);
  return b.einsum("bhts,bshe->bthe", {b.cast(weights, b.dtype(x[2])), x[2]});
}

ValueId dot_product_attention(Context& c) {
  const std::vector<ValueId> x = c.promoted({c.operands[0], c.operands[1], c.operands[2]});
  Builder& b = c.b;
  const Shape q = b.shape(x[0]), k = b.shape(x[1]), v = b.shape(x[2]);
  if (q.size() != 4 || k.size() != 4 || v.size() != 4 || !is_floating(b.dtype(x[0])) ||
      q[0] != k[0] || q[0] != v[0] || q[3] != k[3] || k[1] != v[1] || k[2] != v[2] ||
      q[2] % k[2] != 0) {
    operation_error(fmt::format("query {}, key {} and value {} do not fit", shape_string(q),
                                shape_string(k), shape_string(v)),
                    "they are floats (batch, steps, heads, features)");
  }
  if (!c.is_null("attn_logits_soft_cap")) {
    operation_error("`attn_logits_soft_cap` must be null");
  }
  const Shape scores = {q[0], q[2], q[1], k[1]};
  const double scale =
      c.is_null("scale") ? 1 / std::sqrt(static_cast<double>(q[3])) : c.number("scale");
  const ValueId bias = optional_operand(c, 3, x[0]);
  const ValueId mask = attention_mask(c, scores);
  const bool causal = c.boolean("is_causal");
  if (bias != kNone && q[2] != k[2]) {
    operation_error("with a `bias` query and key need the same number of heads");
  }
  if (bias != kNone) {
    return biased_attention(c, x, bias, mask, scores, scale, causal);
  }
  AttentionCall attention;
  attention.scale = scale;
  attention.causal = causal;
  attention.set(AttentionOperand::kMask, mask);
  return add_attention(b, x[0], x[1], x[2], attention);
}

// --- classes -------------------------------------------------------------------------------------

// A loss of the catalogue with these arguments of the call.
ValueId loss_of(Context& c, std::string_view name, ValueId target, ValueId output) {
  ConfigObject loss = default_object(Category::kLoss, name);
  loss.args["from_logits"].data = c.boolean("from_logits");
  if (c.arguments.contains("axis")) {
    loss.args["axis"].data = c.axis("axis", c.rank(output));
  }
  return loss_values(c.b, name, &loss, target, output, c.b.dtype(output)).values;
}

// Element by element: the loss is the mean over an axis of one element.
ValueId binary_crossentropy(Context& c) {
  const ValueId output = c.floating(1), target = c.tensor(0, c.b.dtype(output));
  const int last = static_cast<int>(c.rank(output));
  const ValueId alike = broadcast_operand(c.b, target, c.b.shape(output));
  return loss_of(c, "BinaryCrossentropy", c.b.expand_dims(alike, last),
                 c.b.expand_dims(output, last));
}

ValueId categorical_crossentropy(Context& c) {
  const ValueId output = c.floating(1), target = c.tensor(0, c.b.dtype(output));
  if (c.b.shape(target) != c.b.shape(output)) {
    operation_error(fmt::format("target {} and output {} differ", shape_string(c.b.shape(target)),
                                shape_string(c.b.shape(output))));
  }
  return loss_of(c, "CategoricalCrossentropy", target, output);
}

ValueId sparse_categorical_crossentropy(Context& c) {
  const ValueId output = c.floating(1);
  ValueId target = c.b.cast(c.tensor(0, DType::kInt32), DType::kInt32);
  Shape without = c.b.shape(output);
  without.erase(without.begin() + c.axis_of(output));
  if (c.rank(target) == without.size() + 1 && c.b.shape(target).back() == 1) {
    target = c.b.squeeze(target, static_cast<int>(without.size()));
  }
  if (c.b.shape(target) != without) {
    operation_error(fmt::format("class ids {} do not fit the output {}",
                                shape_string(c.b.shape(target)), shape_string(c.b.shape(output))));
  }
  return loss_of(c, "SparseCategoricalCrossentropy", target, output);
}

// (..., num_classes) of the ids, the operand: 1 at each id.
ValueId rows_of_classes(Context& c) {
  const int64_t count = c.integer("num_classes");
  if (count < 1 || count > (int64_t{1} << 20)) {
    operation_error(fmt::format("`num_classes` {} is not in [1, 2^20]", count));
  }
  const ValueId ids = c.b.cast(c.tensor(0, DType::kInt32), DType::kInt32);
  const std::optional<DType> dtype =
      c.is_null("dtype") ? std::optional(c.floatx) : parse_dtype(c.text("dtype"));
  if (!dtype || *dtype == DType::kBool) {
    operation_error("`dtype` must be null or the name of a number's type");
  }
  return c.b.one_hot(ids, count, *dtype);
}

ValueId one_hot(Context& c) {
  const ValueId rows = rows_of_classes(c);
  const size_t rank = c.rank(rows);
  return move_axis(c.b, rows, rank - 1, static_cast<size_t>(c.axis("axis", rank)));
}

// 1 for each class among the ids of axis 1 (of a vector: of axis 0).
ValueId multi_hot(Context& c) {
  const ValueId rows = rows_of_classes(c);
  if (c.integer("axis") != -1 || c.rank(rows) < 2) {
    operation_error("it takes ids of one dimension or more, and `axis` must be -1",
                    "moveaxis() moves the classes");
  }
  return c.b.reduce_max(rows, {c.rank(rows) > 2 ? 1 : 0});
}

// Whether fewer than k classes are above that of the target.
ValueId in_top_k(Context& c) {
  Builder& b = c.b;
  const ValueId ids = b.cast(c.tensor(0, DType::kInt32), DType::kInt32), p = c.floating(1);
  Shape with_classes = b.shape(ids);
  with_classes.push_back(c.rank(p) == 0 ? 0 : b.shape(p).back());
  if (b.shape(p) != with_classes) {
    operation_error("it takes class ids (...) and predictions (..., classes)");
  }
  const int64_t classes = with_classes.back();
  const ValueId is_target = b.one_hot(ids, classes, DType::kInt32);
  const ValueId own = b.select(nonzero_mask(b, is_target), p, constant_like(b, p, 0));
  const auto last = static_cast<int64_t>(c.rank(p)) - 1;
  const ValueId above = b.binary("gt", p, b.reduce_sum(own, {last}, true));
  const ValueId rank = b.reduce_sum(b.cast(above, DType::kInt32), {last});
  return b.binary("lt", rank, constant_like(b, rank, static_cast<double>(c.integer("k"))));
}

}  // namespace

std::vector<Operation> network_operations() {
  return {
      {"layer_normalization", "LayerNorm", "nn", "x, gamma=None, beta=None",
       "axis=-1, epsilon=None", layer_normalization},
      {"rms_normalization", "RMSNorm", "nn", "x, scale=None", "axis=-1, epsilon=None",
       rms_normalization},
      {"moments", "Moments", "nn", "x", "axes, keepdims=False", moments, true},
      {"dot_product_attention", "DotProductAttention", "nn",
       "query, key, value, bias=None, mask=None",
       "scale=None, is_causal=False, attn_logits_soft_cap=None", dot_product_attention},
      {"binary_crossentropy", "BinaryCrossentropy", "nn", "target, output", "from_logits=False",
       binary_crossentropy},
      {"categorical_crossentropy", "CategoricalCrossentropy", "nn", "target, output",
       "from_logits=False, axis=-1", categorical_crossentropy},
      {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", "nn", "target, output",
       "from_logits=False, axis=-1", sparse_categorical_crossentropy},
      {"one_hot", "OneHot", "nn", "x", "num_classes, axis=-1, dtype=None", one_hot},
      {"multi_hot", "MultiHot", "nn", "inputs", "num_classes, axis=-1, dtype=None", multi_hot},
      {"in_top_k", "InTopK", "math", "targets, predictions", "k", in_top_k},
  };
}

}  // namespace meshtrain
