// MultiHeadAttention and GroupQueryAttention. Source: Keras 3 layers/attention.
#include "ir/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nn/arguments.h"
#include "nn/attention_axes.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/lora.h"
#include "nn/roles.h"
#include "nn/rotary.h"
#include "nn/step_positions.h"

namespace meshtrain {
namespace {

constexpr const char* kOpenSizes = "all sizes but the batch must be known";

// "abc..." of the given length, from `first` on.
std::string letters_from(char first, size_t count) {
  std::string out(count, first);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// A product of the layer: kernel and, with use_bias, bias.
struct Projection {
  int kernel = kNone, bias = kNone;
};

class ProjectedAttention : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  bool regularizes_output() const override { return false; }
  size_t masked_input() const override {
    return inputs_of(use, use.roles.empty() ? 1 : use.roles.size()).query;
  }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!set_sizes(diagnostics) || !check_flash(diagnostics)) {
      return failed_shape();
    }
    const std::optional<AttentionInputs> found = find_inputs(inputs, diagnostics);
    if (!found || !set_axes(inputs, *found, diagnostics)) {
      return failed_shape();
    }
    const Shape &query = inputs[found->query], &key = inputs[found->key],
                &value = inputs[found->value];
    query_ = add_projection("query", {query.back()}, {heads_, head_size_});
    key_ = add_projection("key", {key.back()}, {groups_, head_size_});
    if (config_.boolean("use_gate")) {
      gate_ = add_projection("gate", {query.back()}, {heads_, value_size_});
    }
    value_ = add_projection("value", {value.back()}, {groups_, value_size_});
    Shape features = output_features(query.back());
    output_ = add_projection("attention_output", {heads_, value_size_}, features);
    scores_shape_ = axes_.scores_shape(query, key, heads_);
    Shape out(query.begin(), query.end() - 1);
    out.insert(out.end(), features.begin(), features.end());
    return out;
  }

  std::vector<Shape> further_shapes() const override {
    return returns_scores() ? std::vector<Shape>{scores_shape_} : std::vector<Shape>();
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const AttentionInputs at = inputs_of(use, inputs.size());
    const int64_t copies = copies_of_heads();
    ValueId q = project(context, query_, inputs[at.query], 1);
    ValueId k = project(context, key_, inputs[at.key], 1, copies);
    const ValueId gate = gate_.kernel == kNone
                             ? kNone
                             : b.unary("sigmoid", project(context, gate_, inputs[at.query], 1));
    ValueId v = project(context, value_, inputs[at.value], 1, copies);
    const Shape projected = b.shape(q), projected_key = b.shape(k);
    q = axes_.in_rows(b, q);
    k = axes_.in_rows(b, k);
    v = axes_.in_rows(b, v);
    if (config_.has("rotary")) {
      const ConfigObject& rotary = config_.arg("rotary").object();
      const ValueId positions = positions_of(context, at, inputs, b.shape(q));
      q = rotate(b, rotary, q, positions);
      k = rotate(b, rotary, k, positions);
    }
    const AttentionCall attention = attention_call(context, at, inputs, q, k);
    ValueId o = kNone;
    if (returns_scores()) {
      const ValueId weights = attention_weights(b, q, k, attention);
      context.also(b.reshape(weights, axes_.scores_shape(projected, projected_key, heads_)));
      o = weigh_values(b, weights, v, attention);
    } else {
      o = attend(b, q, k, v, attention);
    }
    Shape features = projected;
    features.back() = value_size_;
    o = axes_.from_rows(b, o, features);
    if (gate != kNone) {
      o = b.mul(o, gate);
    }
    return project(context, output_, o, 2);
  }

 protected:
  // Sets heads_, groups_, head_size_ and value_size_ from the arguments.
  virtual bool set_sizes(Diagnostics& diagnostics) = 0;
  virtual Shape output_features(int64_t query_features) const = 0;

  int64_t heads_ = 1, groups_ = 1, head_size_ = 1, value_size_ = 1;

 private:
  bool returns_scores() const { return use.call_flag("return_attention_scores"); }

  // Keras refuses both pairs.
  bool check_flash(Diagnostics& diagnostics) const {
    if (!boolean_or(config_, "flash_attention", false)) {
      return true;
    }
    if (returns_scores()) {
      argument_error(diagnostics, "flash_attention",
                     "is true, with which Keras returns no attention scores")
          .help("leave `flash_attention` or `return_attention_scores` out");
      return false;
    }
    if (config_.number("dropout") > 0) {
      argument_error(diagnostics, "flash_attention",
                     "is true, which Keras allows without dropout only")
          .help("leave `flash_attention` out: the fused kernel computes dropout, too");
      return false;
    }
    return true;
  }

  std::optional<AttentionInputs> find_inputs(std::span<const Shape> inputs,
                                             Diagnostics& diagnostics) const {
    std::string problem;
    const std::optional<AttentionInputs> found = try_inputs(use, inputs.size(), problem);
    if (!found) {
      shape_error(diagnostics, inputs, problem)
          .help(
              "write `inputs: x` for self-attention, `inputs: [query, value, key]`, or a map such "
              "as `inputs: {query: x, value: y, attention_mask: m}`");
      return std::nullopt;
    }
    problem = shape_problem(inputs, *found);
    if (!problem.empty()) {
      shape_error(diagnostics, inputs, problem)
          .help(problem == kOpenSizes
                    ? "write them in the Input's `shape`"
                    : "merge, reshape or name other layers in `inputs`, so that their sizes fit");
      return std::nullopt;
    }
    return found;
  }

  std::string shape_problem(std::span<const Shape> inputs, const AttentionInputs& at) const {
    const Shape &query = inputs[at.query], &key = inputs[at.key], &value = inputs[at.value];
    if (query.size() < 3 || key.size() != query.size() || value.size() != query.size()) {
      return "query, key and value need one rank, at least 3: (batch, steps, features)";
    }
    for (const Shape* shape : {&query, &key, &value}) {
      if (std::find(shape->begin() + 1, shape->end(), kUnknownDim) != shape->end()) {
        return kOpenSizes;
      }
    }
    if (!std::equal(key.begin() + 1, key.end() - 1, value.begin() + 1, value.end() - 1)) {
      return fmt::format("key {} and value {} must agree in all but the last dimension",
                         shape_string(key), shape_string(value));
    }
    return mask_problem(inputs, at, query[1], key[1], query.size());
  }

  std::string mask_problem(std::span<const Shape> inputs, const AttentionInputs& at,
                           int64_t queries, int64_t keys, size_t rank) const {
    const bool has_any = at.query_mask || at.key_mask || at.value_mask || at.attention_mask ||
                         at.positions || at.segments || use.call_flag("use_causal_mask") ||
                         config_.has("sliding_window") || config_.has("rotary");
    if (rank > 3 && has_any) {
      return "masks, positions and windows need inputs of rank 3";
    }
    const auto check = [&](const std::optional<size_t>& role, const char* name, int64_t steps) {
      return !role || inputs[*role] == Shape{kUnknownDim, steps}
                 ? std::string()
                 : fmt::format("{} must be (None, {}), not {}", name, steps,
                               shape_string(inputs[*role]));
    };
    for (const std::string& problem :
         {check(at.query_mask, "query_mask", queries), check(at.key_mask, "key_mask", keys),
          check(at.value_mask, "value_mask", keys), check(at.positions, "positions", queries),
          check(at.segments, "segments", queries)}) {
      if (!problem.empty()) {
        return problem;
      }
    }
    if ((at.positions || at.segments) && queries != keys) {
      return "positions and segments are for self-attention: queries and keys are the same steps";
    }
    if (at.attention_mask) {
      const Shape& mask = inputs[*at.attention_mask];
      const Shape without_heads{kUnknownDim, queries, keys};
      const Shape whole{kUnknownDim, heads_, queries, keys};
      const Shape& like = mask.size() == 3 ? without_heads : whole;
      if (mask.size() != like.size() || mask[0] != kUnknownDim || !can_broadcast(mask, like) ||
          broadcast_shapes(mask, like) != like) {
        return fmt::format(
            "attention_mask must be (None, {0}, {1}) or (None, {2}, {0}, {1}), with 1 in place of "
            "what all share, not {3}",
            queries, keys, heads_, shape_string(mask));
      }
    }
    return {};
  }

  bool set_axes(std::span<const Shape> inputs, const AttentionInputs& at,
                Diagnostics& diagnostics) {
    const Shape &query = inputs[at.query], &key = inputs[at.key];
    const std::string problem =
        axes_.set(integers_of(value_or_null(config_, "attention_axes")), query.size());
    if (!problem.empty()) {
      argument_error(diagnostics, "attention_axes", problem)
          .help(fmt::format("write 1 to {}, each only once", query.size() - 2));
      return false;
    }
    for (size_t d = 1; d + 1 < query.size(); ++d) {
      if (!axes_.has(static_cast<int64_t>(d)) && query[d] != key[d]) {
        shape_error(diagnostics, inputs,
                    fmt::format("dimension {} is no attention axis, and must be the same", d))
            .help("give query and key the same size there, or name it in `attention_axes`");
        return false;
      }
    }
    return true;
  }

  Projection add_projection(const std::string& part, const Shape& in, const Shape& out) {
    const auto product = [](const Shape& shape) {
      return static_cast<double>(num_elements(shape));
    };
    Shape kernel = in;
    kernel.insert(kernel.end(), out.begin(), out.end());
    Projection projection;
    projection.kernel = add_weight(
        part + "/kernel", kernel, variable_dtype,
        make_initializer(config_.arg("kernel_initializer"), Fans{product(in), product(out)}));
    weights[static_cast<size_t>(projection.kernel)].lora.inputs = in.size();
    if (config_.boolean("use_bias")) {
      projection.bias = add_weight(part + "/bias", out, variable_dtype,
                                   make_initializer(config_.arg("bias_initializer")));
    }
    return projection;
  }

  // Heads of queries may be split over more devices than there are heads of keys and values, which
  // all of these devices then have. With so many copies of each, a device projects and attends to
  // those alone that its own queries use. A penalty of the projections counts each once.
  int64_t copies_of_heads() const {
    const auto parts = [&](const Projection& projection) {
      const Shape& shards = weights[static_cast<size_t>(projection.kernel)].shards;
      return shards.empty() ? 1 : shards[1];
    };
    const bool can_copy =
        parts(key_) == 1 && parts(value_) == 1 && !config_.has("activity_regularizer");
    return can_copy ? std::lcm(groups_, parts(query_)) / groups_ : 1;
  }

  // A kernel (features, heads, ...) or a bias (heads, ...) with each head `copies` times.
  static ValueId copy_heads(Builder& b, ValueId x, int64_t copies, int64_t axis) {
    std::vector<int64_t> heads_first(b.shape(x).size());
    std::iota(heads_first.begin(), heads_first.end(), 0);
    std::swap(heads_first[0], heads_first[static_cast<size_t>(axis)]);
    const Shape all{b.shape(x)[static_cast<size_t>(axis)] * copies};
    const ValueId place = b.iota(all, 0, DType::kFloat32);
    const ValueId head = b.cast(
        b.unary("floor", b.div(b.add(place, 0.5), static_cast<double>(copies))), DType::kInt32);
    return b.transpose(b.gather_rows(b.transpose(x, heads_first), head), heads_first);
  }

  // x times the kernel over its last `contracted` dimensions, plus the bias.
  ValueId project(CallContext& context, const Projection& projection, ValueId x, size_t contracted,
                  int64_t copies = 1) const {
    Builder& b = context.builder;
    x = to_compute(context, x);
    const auto weight = [&](int index, int64_t heads_axis) {
      const ValueId own = context.weight(index);
      return copies == 1 ? own : copy_heads(b, own, copies, heads_axis);
    };
    const size_t rank = weights[static_cast<size_t>(projection.kernel)].shape.size();
    const std::string outer = letters_from('a', b.shape(x).size() - contracted);
    const std::string inner = letters_from('m', contracted);
    const std::string out = letters_from('s', rank - contracted);
    const std::string equation = outer + inner + "," + inner + out + "->" + outer + out;
    x = copies == 1 ? weighted_einsum(context, equation, x, projection.kernel)
                    : b.einsum(equation, {x, weight(projection.kernel, 1)});
    if (projection.bias != kNone) {
      x = b.add(x, weight(projection.bias, 0));
    }
    context.regularize(x);
    return x;
  }

  ValueId rotate(Builder& b, const ConfigObject& rotary, ValueId x, ValueId positions) const {
    const Shape shape = b.shape(x);
    const auto [cosine, sine] =
        rotary_angles(b, rotary, positions, 0, shape[1], shape[3], b.dtype(x));
    return b.apply("rotary", {x, cosine, sine}, {{"inverse", int64_t{0}}});
  }

  ValueId role_value(CallContext& context, const std::optional<size_t>& role,
                     std::span<const ValueId> inputs, DType dtype) const {
    return role ? context.builder.cast(inputs[*role], dtype) : kNone;
  }

  // Positions (batch, steps) of queries and keys; kNone where they are in order.
  ValueId positions_of(CallContext& context, const AttentionInputs& at,
                       std::span<const ValueId> inputs, const Shape& queries) const {
    if (at.positions) {
      return role_value(context, at.positions, inputs, DType::kInt32);
    }
    const ValueId positions = step_positions(context, queries[1]);
    return positions == kNone ? kNone
                              : context.builder.broadcast_to(positions, {queries[0], queries[1]});
  }

  ValueId attend(Builder& b, ValueId q, ValueId k, ValueId v,
                 const AttentionCall& attention) const {
    if (attention.rate < 1) {
      return add_attention(b, q, k, v, attention);
    }
    Shape shape = b.shape(q);
    shape.back() = value_size_;
    return b.constant(0, b.dtype(q), shape);
  }

  AttentionCall attention_call(CallContext& context, const AttentionInputs& at,
                               std::span<const ValueId> inputs, ValueId q, ValueId k) const {
    Builder& b = context.builder;
    const double rate = context.training ? config_.number("dropout") : 0;
    AttentionCall attention;
    attention.scale = 1 / std::sqrt(static_cast<double>(head_size_));
    attention.causal = use.call_flag("use_causal_mask");
    attention.window = integer_or(config_, "sliding_window", 0);
    attention.rate = rate;
    attention.seed = seed(context);
    const auto value = [&](const std::optional<size_t>& role, DType dtype) {
      return role_value(context, role, inputs, dtype);
    };
    // A mask that came with an input takes the place of one that is given.
    const auto mask_of = [&](size_t input, const std::optional<size_t>& role) {
      const ValueId own = context.masks.empty() ? kNone : context.masks[input];
      return own == kNone ? value(role, DType::kBool) : own;
    };
    const ValueId value_mask = mask_of(at.value, at.value_mask);
    const ValueId key_mask =
        at.key == at.value ? value(at.key_mask, DType::kBool) : mask_of(at.key, at.key_mask);
    using Operand = AttentionOperand;
    attention.set(Operand::kStep, rate > 0 ? context.step : kNone);
    attention.set(Operand::kQueryMask, mask_of(at.query, at.query_mask));
    ValueId of_keys = both_masks(b, value_mask, key_mask);
    const ValueId segments = value(at.segments, DType::kInt32);
    attention.set(Operand::kQuerySegments, segments);
    attention.set(Operand::kKeySegments, segments);
    const ValueId positions = attention.causal || attention.window > 0 || at.positions
                                  ? positions_of(context, at, inputs, b.shape(q))
                                  : kNone;
    attention.set(Operand::kQueryPositions, positions);
    attention.set(Operand::kKeyPositions,
                  at.positions || positions == kNone
                      ? positions
                      : b.broadcast_to(key_positions(context, b.shape(k)[1]),
                                       {b.shape(k)[0], b.shape(k)[1]}));
    ValueId mask = value(at.attention_mask, DType::kBool);
    if (mask != kNone && b.shape(mask).size() == 3) {
      mask = b.expand_dims(mask, 1);
    }
    if (mask != kNone && b.shape(mask)[1] == 1 && b.shape(mask)[2] == 1) {  // of keys alone
      const Shape keys{b.shape(mask)[0], b.shape(k)[1]};
      of_keys = both_masks(b, of_keys,
                           b.broadcast_to(b.reshape(mask, {keys[0], b.shape(mask)[3]}), keys));
      mask = kNone;
    }
    if (mask != kNone) {
      Shape whole = b.shape(mask);
      whole[2] = b.shape(q)[1];
      whole[3] = b.shape(k)[1];
      mask = b.broadcast_to(mask, whole);
    }
    attention.set(Operand::kKeyMask, of_keys);
    attention.set(Operand::kMask, mask);
    return attention;
  }

  AttentionAxes axes_;
  Shape scores_shape_;  // of the call that was built last
  Projection query_, key_, gate_, value_, output_;
};

class MultiHeadAttention final : public ProjectedAttention {
 public:
  using ProjectedAttention::ProjectedAttention;

 protected:
  bool set_sizes(Diagnostics& diagnostics) override {
    heads_ = groups_ = config_.integer("num_heads");
    head_size_ = config_.integer("key_dim");
    value_size_ = integer_or(config_, "value_dim", head_size_);
    return !config_.has("rotary") ||
           check_rotary(config_.arg("rotary").object(), name + "/rotary", head_size_, diagnostics);
  }
  Shape output_features(int64_t query_features) const override {
    const std::vector<int64_t> given = integers_of(value_or_null(config_, "output_shape"));
    return given.empty() || given == std::vector<int64_t>{0} ? Shape{query_features}
                                                             : Shape(given.begin(), given.end());
  }
};

class GroupQueryAttention final : public ProjectedAttention {
 public:
  using ProjectedAttention::ProjectedAttention;

 protected:
  bool set_sizes(Diagnostics& diagnostics) override {
    heads_ = config_.integer("num_query_heads");
    groups_ = config_.integer("num_key_value_heads");
    head_size_ = value_size_ = config_.integer("head_dim");
    if (heads_ % groups_ != 0) {
      argument_error(
          diagnostics, "num_query_heads",
          fmt::format("is {}, which {} heads of keys and values do not divide", heads_, groups_))
          .help("set `num_key_value_heads` to a divisor of `num_query_heads`");
      return false;
    }
    return !config_.has("rotary") ||
           check_rotary(config_.arg("rotary").object(), name + "/rotary", head_size_, diagnostics);
  }
  Shape output_features(int64_t query_features) const override { return {query_features}; }
};

}  // namespace

std::vector<LayerEntry> attention_layers() {
  return {{"MultiHeadAttention", make_as<MultiHeadAttention>},
          {"GroupQueryAttention", make_as<GroupQueryAttention>}};
}

}  // namespace meshtrain
