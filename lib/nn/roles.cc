#include "nn/roles.h"

#include <algorithm>

#include "base/error.h"
#include "nn/graph_parts.h"

namespace meshtrain {
namespace {

struct Role {
  std::string_view name;
  std::optional<size_t> AttentionInputs::*place;
};
constexpr Role kRoles[] = {{"query_mask", &AttentionInputs::query_mask},
                           {"value_mask", &AttentionInputs::value_mask},
                           {"key_mask", &AttentionInputs::key_mask},
                           {"attention_mask", &AttentionInputs::attention_mask},
                           {"positions", &AttentionInputs::positions},
                           {"segments", &AttentionInputs::segments}};

}  // namespace

std::optional<AttentionInputs> try_inputs(const LayerUse& use, size_t count, std::string& problem) {
  AttentionInputs out;
  if (use.roles.empty()) {
    if (count == 0 || count > 3) {
      problem = "it takes a query, a value and a key";
      return std::nullopt;
    }
    out.value = count > 1 ? 1 : 0;
    out.key = count > 2 ? 2 : out.value;
    return out;
  }
  std::optional<size_t> query, value, key;
  for (size_t i = 0; i < use.roles.size(); ++i) {
    const std::string& name = use.roles[i];
    const auto role = std::find_if(std::begin(kRoles), std::end(kRoles),
                                   [&](const Role& known) { return known.name == name; });
    if (name == "query") {
      query = i;
    } else if (name == "value") {
      value = i;
    } else if (name == "key") {
      key = i;
    } else if (role != std::end(kRoles)) {
      out.*(role->place) = i;
    } else {
      problem = fmt::format("there is no input `{}`", name);
      return std::nullopt;
    }
  }
  if (!query) {
    problem = "its inputs name no `query`";
    return std::nullopt;
  }
  out.query = *query;
  out.value = value.value_or(*query);
  out.key = key.value_or(out.value);
  return out;
}

AttentionInputs inputs_of(const LayerUse& use, size_t count) {
  std::string problem;
  const std::optional<AttentionInputs> found = try_inputs(use, count, problem);
  MESHTRAIN_CHECK(found.has_value(), "{}", problem);
  return *found;
}

ValueId add_attention(Builder& b, ValueId q, ValueId k, ValueId v, const AttentionCall& call) {
  ValueList inputs = {q, k, v};
  std::string names;
  for (size_t i = 0; i < kNumAttentionOperands; ++i) {
    if (call.operands[i] != kNone) {
      inputs.push_back(call.operands[i]);
      names += names.empty() ? "" : " ";
      names += attention_operand_name(static_cast<AttentionOperand>(i));
    }
  }
  return b.add_node("attention", inputs,
                    {{"scale", call.scale},
                     {"causal", int64_t{call.causal}},
                     {"window", call.window},
                     {"rate", call.rate},
                     {"seed", call.seed},
                     {"operands", names}})[0];
}

ValueId both_masks(Builder& builder, ValueId a, ValueId b) {
  return a == kNone ? b : b == kNone ? a : builder.binary("logical_and", a, b);
}

namespace {

ValueId operand(const AttentionCall& call, AttentionOperand which) {
  return call.operands[static_cast<size_t>(which)];
}

// Numbers of queries (B, T) and of keys (B, S) that meet in each pair: (B, 1, T, 1), (B, 1, 1, S).
ValueId of_queries(Builder& b, ValueId x) {
  return x == kNone ? kNone : b.expand_dims(b.expand_dims(x, 1), 3);
}
ValueId of_keys(Builder& b, ValueId x) {
  return x == kNone ? kNone : b.expand_dims(b.expand_dims(x, 1), 1);
}

// The pairs that causality and the window allow; kNone: all.
ValueId near_pairs(Builder& b, const AttentionCall& call, int64_t queries, int64_t keys) {
  ValueId query = of_queries(b, operand(call, AttentionOperand::kQueryPositions));
  ValueId key = of_keys(b, operand(call, AttentionOperand::kKeyPositions));
  if (query == kNone) {
    query = b.iota({1, 1, queries, 1}, 2, DType::kInt32);
    key = b.iota({1, 1, 1, keys}, 3, DType::kInt32);
  }
  const ValueId order = call.causal ? b.binary("ge", query, key) : kNone;
  if (call.window == 0) {
    return order;
  }
  const ValueId window = b.constant(static_cast<double>(call.window), DType::kInt32);
  return both_masks(b, order,
                    both_masks(b, b.binary("lt", query, b.add(key, window)),
                               b.binary("lt", key, b.add(query, window))));
}

// Which pairs (B, H, T, S) meet, as a shape that broadcasts with it; kNone: all.
ValueId allowed_pairs(Builder& b, const AttentionCall& call, int64_t queries, int64_t keys) {
  using Operand = AttentionOperand;
  ValueId out = near_pairs(b, call, queries, keys);
  out = both_masks(b, out, of_queries(b, operand(call, Operand::kQueryMask)));
  out = both_masks(b, out, of_keys(b, operand(call, Operand::kKeyMask)));
  if (const ValueId segments = operand(call, Operand::kQuerySegments); segments != kNone) {
    out = both_masks(
        b, out,
        b.binary("eq", of_queries(b, segments), of_keys(b, operand(call, Operand::kKeySegments))));
  }
  return both_masks(b, out, operand(call, Operand::kMask));
}

// Each head of keys or values as often as heads of queries read it.
ValueId repeat_heads(Builder& b, ValueId x, int64_t heads) {
  const Shape shape = b.shape(x);
  if (shape[2] == heads) {
    return x;
  }
  const ValueId each = b.broadcast_to(b.expand_dims(x, 3),
                                      {shape[0], shape[1], shape[2], heads / shape[2], shape[3]});
  return b.reshape(each, {shape[0], shape[1], heads, shape[3]});
}

}  // namespace

ValueId masked_softmax(Builder& b, ValueId scores, ValueId allowed) {
  const bool is_small = dtype_size(b.dtype(scores)) == 2;
  ValueId x = is_small ? b.cast(scores, DType::kFloat32) : scores;
  const int64_t last = last_axis(b, x);
  const ValueId zero = constant_like(b, x, 0);
  x = allowed == kNone ? x : b.select(allowed, x, constant_like(b, x, -1e9));
  ValueId p = b.exp(b.sub(x, b.reduce_max(x, {last}, true)));
  p = allowed == kNone ? p : b.select(allowed, p, zero);
  const ValueId sum = b.reduce_sum(p, {last}, true);
  return b.div(p, b.select(b.binary("gt", sum, zero), sum, constant_like(b, x, 1)));
}

ValueId dropped_weights(Builder& b, ValueId weights, double rate, ValueId step, int64_t seed) {
  return rate >= 1  ? b.mul(weights, 0.0)
         : rate > 0 ? b.dropout(weights, rate, step, seed)
                    : weights;
}

ValueId attention_weights(Builder& b, ValueId q, ValueId k, const AttentionCall& call) {
  const int64_t queries = b.shape(q)[1], heads = b.shape(q)[2], keys = b.shape(k)[1];
  const ValueId scores =
      b.einsum("bthd,bshd->bhts", {b.mul(q, call.scale), repeat_heads(b, k, heads)});
  return b.cast(masked_softmax(b, scores, allowed_pairs(b, call, queries, keys)), b.dtype(q));
}

ValueId weigh_values(Builder& b, ValueId weights, ValueId v, const AttentionCall& call) {
  weights =
      dropped_weights(b, weights, call.rate, operand(call, AttentionOperand::kStep), call.seed);
  return b.einsum("bhts,bshe->bthe", {weights, repeat_heads(b, v, b.shape(weights)[1])});
}

}  // namespace meshtrain
