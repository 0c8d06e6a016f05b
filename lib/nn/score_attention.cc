// Attention and AdditiveAttention. Source: Keras 3 layers/attention.
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/roles.h"
#include "nn/step_positions.h"

namespace meshtrain {
namespace {

// The value that names Keras' default initializer.
ConfigValue glorot_uniform() {
  ConfigValue value;
  value.data =
      std::make_shared<ConfigObject>(default_object(Category::kInitializer, "GlorotUniform"));
  return value;
}

// Inputs [query, value] or [query, value, key] of (batch, steps, features).
class ScoreAttention : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    std::string problem;
    const std::optional<AttentionInputs> at = try_inputs(use, inputs.size(), problem);
    if (at && (at->attention_mask || at->positions || at->segments)) {
      problem = "it takes query, value and key, with query_mask and value_mask";
    }
    if (problem.empty() && at && use.roles.empty() && inputs.size() < 2) {
      problem = "it takes a list of a query and a value";
    }
    if (!problem.empty()) {
      shape_error(diagnostics, inputs, problem)
          .help("write `inputs: [query, value]` or `inputs: [query, value, key]`");
      return failed_shape();
    }
    const Shape &query = inputs[at->query], &value = inputs[at->value], &key = inputs[at->key];
    if (query.size() != 3 || value.size() != 3 || key.size() != 3 || query[2] != key[2] ||
        key[1] != value[1] || query[2] == kUnknownDim || value[2] == kUnknownDim) {
      shape_error(diagnostics, inputs,
                  "query (batch, T, D), value (batch, S, E) and key (batch, S, D) do not fit")
          .help("query and key need the same features, key and value the same steps");
      return failed_shape();
    }
    const auto is_mask = [&](const std::optional<size_t>& role, int64_t steps) {
      return !role || inputs[*role] == Shape{kUnknownDim, steps};
    };
    if (!is_mask(at->query_mask, query[1]) || !is_mask(at->value_mask, value[1]) ||
        !is_mask(at->key_mask, value[1])) {
      shape_error(diagnostics, inputs, "a mask has one flag for each step: (batch, steps)")
          .help("give the mask's Input the shape [steps]");
      return failed_shape();
    }
    add_weights(query[2]);
    scores_shape_ = {query[0], query[1], key[1]};
    return {query[0], query[1], value[2]};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const AttentionInputs at = inputs_of(use, inputs.size());
    const ValueId q = inputs[at.query], v = inputs[at.value], k = inputs[at.key];
    const auto flags = [&](const std::optional<size_t>& role) {
      return role ? b.cast(inputs[*role], DType::kBool) : kNone;
    };
    const auto mask_of = [&](size_t input, const std::optional<size_t>& role) {
      const ValueId own = context.masks.empty() ? kNone : context.masks[input];
      return role ? flags(role) : own;
    };
    const ValueId query_mask = mask_of(at.query, at.query_mask);
    const ValueId key_mask = both_masks(b, mask_of(at.value, at.value_mask), flags(at.key_mask));
    const bool causal = use.call_flag("use_causal_mask");
    ValueId o = is_product() && !returns_scores()
                    ? attend(context, q, v, k, key_mask, causal)
                    : weigh(context, scores(context, q, k), v, key_mask, causal);
    if (query_mask != kNone) {
      o = b.select(b.expand_dims(query_mask, 2), o, b.constant(0, b.dtype(o)));
    }
    return o;
  }

  std::vector<Shape> further_shapes() const override {
    return returns_scores() ? std::vector<Shape>{scores_shape_} : std::vector<Shape>();
  }

  size_t masked_input() const override { return roles().query; }
  // A mask of the queries that is given is that of the output, too.
  bool makes_mask() const override { return roles().query_mask.has_value(); }
  ValueId make_mask(CallContext& context, std::span<const ValueId> inputs) const override {
    return context.builder.cast(inputs[*roles().query_mask], DType::kBool);
  }

 protected:
  virtual void add_weights(int64_t features) = 0;
  // Whether scores are products of queries and keys, for which there is an op of its own.
  virtual bool is_product() const { return false; }
  virtual ValueId scaled_query(CallContext&, ValueId q) const { return q; }
  virtual ValueId scores(CallContext& context, ValueId q, ValueId k) const = 0;

  // q (B, T, D) and k (B, S, D), added for each pair: (B, T, S, D).
  static ValueId pair_sums(Builder& b, ValueId q, ValueId k) {
    return b.add(b.expand_dims(q, 2), b.expand_dims(k, 1));
  }

 private:
  AttentionInputs roles() const { return inputs_of(use, use.roles.empty() ? 1 : use.roles.size()); }
  bool returns_scores() const { return use.call_flag("return_attention_scores"); }

  double rate(const CallContext& context) const {
    return context.training ? config_.number("dropout") : 0;
  }

  ValueId attend(CallContext& context, ValueId q, ValueId v, ValueId k, ValueId key_mask,
                 bool causal) const {
    Builder& b = context.builder;
    const Shape shape = {b.shape(q)[0], b.shape(q)[1], b.shape(v)[2]};
    if (rate(context) >= 1) {
      return b.constant(0, b.dtype(q), shape);
    }
    AttentionCall attention;
    attention.causal = causal;
    attention.rate = rate(context);
    attention.seed = seed(context);
    attention.set(AttentionOperand::kStep, attention.rate > 0 ? context.step : kNone);
    attention.set(AttentionOperand::kKeyMask, key_mask);
    if (const ValueId order = causal ? step_positions(context, shape[1]) : kNone; order != kNone) {
      const int64_t keys = b.shape(k)[1];
      attention.set(AttentionOperand::kQueryPositions, b.broadcast_to(order, {shape[0], shape[1]}));
      attention.set(AttentionOperand::kKeyPositions,
                    b.broadcast_to(key_positions(context, keys), {shape[0], keys}));
    }
    return b.squeeze(add_attention(b, b.expand_dims(scaled_query(context, q), 2),
                                   b.expand_dims(k, 2), b.expand_dims(v, 2), attention),
                     2);
  }

  // softmax(scores) v; rows without a key are zero. Keras' scores have the dropout, too.
  ValueId weigh(CallContext& context, ValueId scores, ValueId v, ValueId key_mask,
                bool causal) const {
    Builder& b = context.builder;
    const Shape shape = b.shape(scores);
    ValueId allowed = key_mask == kNone ? kNone : b.expand_dims(key_mask, 1);
    if (causal) {
      const ValueId query = b.iota({shape[1], 1}, 0, DType::kInt32);
      const ValueId key = b.iota({1, shape[2]}, 1, DType::kInt32);
      allowed = both_masks(b, allowed, b.binary("ge", query, key));
    }
    ValueId p = to_compute(context, masked_softmax(b, scores, allowed));
    p = dropped_weights(b, p, rate(context), context.step, seed(context));
    if (returns_scores()) {
      context.also(p);
    }
    return b.einsum("bts,bse->bte", {p, v});
  }

  Shape scores_shape_;  // of the call that was built last
};

// score_mode dot: q k, times `scale` with use_scale; concat: concat_score_weight times the sum of
// tanh(scale (q + k)).
class Attention final : public ScoreAttention {
 public:
  using ScoreAttention::ScoreAttention;

 protected:
  void add_weights(int64_t) override {
    scale_ = config_.boolean("use_scale") ? add_weight("scale", {}, variable_dtype, filled_with(1))
                                          : kNone;
    weight_ = is_product() ? kNone
                           : add_weight("concat_score_weight", {}, variable_dtype, filled_with(1));
  }
  bool is_product() const override { return config_.string("score_mode") == "dot"; }
  ValueId scaled_query(CallContext& context, ValueId q) const override {
    return scale_ == kNone ? q : context.builder.mul(q, context.weight(scale_));
  }
  ValueId scores(CallContext& context, ValueId q, ValueId k) const override {
    Builder& b = context.builder;
    if (is_product()) {
      return b.einsum("btd,bsd->bts", {scaled_query(context, q), k});
    }
    ValueId x = pair_sums(b, q, k);
    x = scale_ == kNone ? x : b.mul(x, context.weight(scale_));
    return b.mul(b.reduce_sum(b.unary("tanh", x), {3}), context.weight(weight_));
  }

 private:
  int scale_ = kNone, weight_ = kNone;
};

// The sum of scale tanh(q + k) over features.
class AdditiveAttention final : public ScoreAttention {
 public:
  using ScoreAttention::ScoreAttention;

 protected:
  void add_weights(int64_t features) override {
    scale_ = config_.boolean("use_scale") ? add_weight("scale", {features}, variable_dtype,
                                                       make_initializer(glorot_uniform()))
                                          : kNone;
  }
  ValueId scores(CallContext& context, ValueId q, ValueId k) const override {
    Builder& b = context.builder;
    const ValueId x = b.unary("tanh", pair_sums(b, q, k));
    return b.reduce_sum(scale_ == kNone ? x : b.mul(x, context.weight(scale_)), {3});
  }

 private:
  int scale_ = kNone;
};

}  // namespace

std::vector<LayerEntry> score_attention_layers() {
  return {{"Attention", make_as<Attention>}, {"AdditiveAttention", make_as<AdditiveAttention>}};
}

}  // namespace meshtrain
