// Positions of language models: PositionEmbedding, SinePositionEncoding, RotaryEmbedding,
// TokenAndPositionEmbedding. Source: Keras Hub 0.32 layers/modeling.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/rotary.h"
#include "nn/step_positions.h"

namespace meshtrain {
namespace {

// A layer over x (batch, ..., steps, features), whose positions are start_index, start_index + 1,
// ... of the argument `call`, or the input `positions` (batch, steps).
class PositionLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

 protected:
  // The input is the first; with a map it is `inputs`, and the other one `positions`.
  bool check_inputs(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    const bool is_map = !use.roles.empty();
    bool fits = is_map ? inputs.size() <= 2 : inputs.size() == 1;
    for (const std::string& role : use.roles) {
      fits = fits && (role == "inputs" || role == "positions");
    }
    if (!fits || !has_role("inputs")) {
      shape_error(diagnostics, inputs, "it takes one input, or a map with `inputs` and `positions`")
          .help("write `inputs: x`, or `inputs: {inputs: x, positions: p}`");
      return false;
    }
    const Shape& x = inputs[role("inputs")];
    for (size_t d = 1; d < x.size(); ++d) {
      if (x[d] == kUnknownDim) {
        shape_error(diagnostics, inputs, "all sizes except the batch must be known")
            .help("write them in the Input's `shape`");
        return false;
      }
    }
    return true;
  }
  bool has_role(std::string_view name) const {
    return use.roles.empty()
               ? name == "inputs"
               : std::find(use.roles.begin(), use.roles.end(), name) != use.roles.end();
  }
  size_t role(std::string_view name) const {
    return use.roles.empty()
               ? 0
               : static_cast<size_t>(std::find(use.roles.begin(), use.roles.end(), name) -
                                     use.roles.begin());
  }
  int64_t start_index() const {
    const ConfigValue* start = use.call_argument("start_index");
    return start == nullptr ? 0 : start->integer();
  }
  // (batch, steps) int32 or, where they are the same in each sample, (steps,); kNone: in order.
  ValueId positions(CallContext& context, std::span<const ValueId> inputs, int64_t steps) const {
    return has_role("positions") ? context.builder.cast(inputs[role("positions")], DType::kInt32)
                                 : step_positions(context, steps, start_index());
  }
  // The same as (batch or 1, steps).
  ValueId positions_of_samples(CallContext& context, std::span<const ValueId> inputs,
                               int64_t steps) const {
    const ValueId found = positions(context, inputs, steps);
    return found == kNone || has_role("positions") ? found : context.builder.expand_dims(found, 0);
  }
  bool positions_fit(std::span<const Shape> inputs, int64_t steps, Diagnostics& diagnostics) const {
    if (!has_role("positions") || inputs[role("positions")] == Shape{kUnknownDim, steps}) {
      return true;
    }
    shape_error(diagnostics, inputs,
                fmt::format("`positions` must be (None, {}), one for each step", steps))
        .help(fmt::format("give the Input of positions the shape [{}]", steps));
    return false;
  }
};

// Rows start, start + 1, ... of a table, or those at positions, over x's shape.
ValueId table_rows(Builder& b, ValueId table, ValueId positions, int64_t start,
                   const Shape& shape) {
  const int64_t steps = shape[shape.size() - 2];
  if (positions != kNone) {
    return b.broadcast_to(b.gather_rows(table, positions), shape);
  }
  const bool is_whole = start == 0 && b.shape(table)[0] == steps;
  return b.broadcast_to(is_whole ? table : b.slice(table, 0, start, start + steps), shape);
}

class PositionEmbedding final : public PositionLayer {
 public:
  using PositionLayer::PositionLayer;
  bool casts_inputs() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[role("inputs")];
    if (x.size() < 3 || (has_role("positions") && x.size() != 3)) {
      shape_error(diagnostics, inputs, "it needs (batch, steps, features)")
          .help("put it behind an Embedding, or reshape its input");
      return failed_shape();
    }
    const int64_t rows = config_.integer("sequence_length"), steps = x[x.size() - 2];
    if (!has_role("positions") && start_index() + steps > rows) {
      shape_error(diagnostics, inputs,
                  fmt::format("steps {} to {} are more than its {} positions", start_index(),
                              start_index() + steps - 1, rows))
          .help("raise `sequence_length`, or shorten the input");
      return failed_shape();
    }
    if (!positions_fit(inputs, steps, diagnostics)) {
      return failed_shape();
    }
    table_ = Layer::add_weight("embeddings", {rows, x.back()}, variable_dtype,
                               make_initializer(config_.arg("initializer")));
    return x;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const Shape shape = b.shape(inputs[role("inputs")]);
    const ValueId places = positions(context, inputs, shape[shape.size() - 2]);
    return table_rows(b, context.weight(table_), places, start_index(), shape);
  }

 private:
  int table_ = kNone;
};

// Feature j at position p: sin (even j) or cos (odd j) of p w^(-2 floor(j / 2) / E). A. Vaswani et
// al., "Attention Is All You Need", 2017.
class SinePositionEncoding final : public PositionLayer {
 public:
  using PositionLayer::PositionLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[role("inputs")];
    if (x.size() < 3 || (has_role("positions") && x.size() != 3)) {
      shape_error(diagnostics, inputs, "it needs (batch, steps, features)")
          .help("put it behind an Embedding, or reshape its input");
      return failed_shape();
    }
    return positions_fit(inputs, x[x.size() - 2], diagnostics) ? x : failed_shape();
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const Shape shape = b.shape(inputs[role("inputs")]);
    const int64_t steps = shape[shape.size() - 2], features = shape.back();
    const DType f64 = DType::kFloat64;
    const ValueId feature = b.iota({features}, 0, f64);
    const ValueId pair = b.unary("floor", b.mul(feature, 0.5));
    const double step =
        -2 * std::log(config_.number("max_wavelength")) / static_cast<double>(features);
    const ValueId given = positions_of_samples(context, inputs, steps);
    const ValueId place =
        given == kNone ? b.add(b.iota({1, steps}, 1, f64), static_cast<double>(start_index()))
                       : b.cast(given, f64);
    const ValueId angles = b.mul(b.expand_dims(place, 2), b.exp(b.mul(pair, step)));
    const ValueId is_even = b.binary("eq", b.sub(feature, b.mul(pair, 2.0)), b.constant(0, f64));
    const ValueId code =
        to_compute(context, b.select(is_even, b.unary("sin", angles), b.unary("cos", angles)));
    Shape aligned(shape.size(), 1);
    aligned.front() = b.shape(code)[0];
    aligned[shape.size() - 2] = steps;
    aligned.back() = features;
    return b.broadcast_to(b.reshape(code, aligned), shape);
  }
};

class RotaryEmbedding final : public PositionLayer {
 public:
  using PositionLayer::PositionLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[role("inputs")];
    const auto step = axis_in(config_.integer("sequence_axis"), x.size());
    const auto feature = axis_in(config_.integer("feature_axis"), x.size());
    if (x.size() < 3 || !step || !feature || *step == *feature || *step == 0 || *feature == 0) {
      shape_error(diagnostics, inputs,
                  "`sequence_axis` and `feature_axis` must be two dimensions other than the batch")
          .help("the defaults are 1 and -1, for (batch, steps, features)");
      return failed_shape();
    }
    const int64_t features = x[static_cast<size_t>(*feature)];
    if (features % 2 != 0) {
      shape_error(diagnostics, inputs,
                  fmt::format("it rotates pairs, and {} features are an odd number", features))
          .help("give the input an even size");
      return failed_shape();
    }
    if (!check_rotary(config_, name, features, diagnostics) ||
        !positions_fit(inputs, x[static_cast<size_t>(*step)], diagnostics)) {
      return failed_shape();
    }
    return x;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = inputs[role("inputs")];
    const std::vector<int64_t> order = order_of(b.shape(x).size());
    const ValueId ordered = b.transpose(x, order);
    const Shape shape = b.shape(ordered);
    const int64_t others =
        std::accumulate(shape.begin() + 2, shape.end() - 1, int64_t{1}, std::multiplies<>());
    const auto [cosine, sine] =
        rotary_angles(b, config_, positions_of_samples(context, inputs, shape[1]), start_index(),
                      shape[1], shape.back(), b.dtype(x));
    const ValueId rotated = b.apply(
        "rotary", {b.reshape(ordered, {shape[0], shape[1], others, shape.back()}), cosine, sine},
        {{"inverse", int64_t{0}}});
    std::vector<int64_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    }
    return b.transpose(b.reshape(rotated, shape), back);
  }

 private:
  // Batch, steps, the others, features.
  std::vector<int64_t> order_of(size_t rank) const {
    const int64_t step = *axis_in(config_.integer("sequence_axis"), rank);
    const int64_t feature = *axis_in(config_.integer("feature_axis"), rank);
    std::vector<int64_t> order = {0, step};
    for (int64_t d = 1; d < static_cast<int64_t>(rank); ++d) {
      if (d != step && d != feature) {
        order.push_back(d);
      }
    }
    order.push_back(feature);
    return order;
  }
};

// Ids (batch, steps) -> rows of a table of tokens plus rows of a table of positions.
class TokenAndPositionEmbedding final : public PositionLayer {
 public:
  using PositionLayer::PositionLayer;
  bool casts_inputs() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& ids = inputs[role("inputs")];
    const int64_t rows = config_.integer("sequence_length");
    if (ids.size() != 2) {
      shape_error(diagnostics, inputs, "it needs ids (batch, steps)")
          .help("give it an Input of ids: {shape: [steps], dtype: int32}");
      return failed_shape();
    }
    if (!has_role("positions") && start_index() + ids[1] > rows) {
      shape_error(diagnostics, inputs,
                  fmt::format("it needs ids (batch, steps) of at most {} steps", rows))
          .help("raise `sequence_length`, or shorten the input");
      return failed_shape();
    }
    if (!positions_fit(inputs, ids[1], diagnostics)) {
      return failed_shape();
    }
    const int64_t tokens = config_.integer("vocabulary_size"),
                  size = config_.integer("embedding_dim");
    token_ = add_weight("token_embedding/embeddings", {tokens, size});
    pad_weight(token_, 0);
    if (!config_.boolean("tie_weights")) {
      const int reverse =
          add_weight("token_embedding/reverse_embeddings", {size, tokens}, variable_dtype,
                     make_initializer(config_.arg("embeddings_initializer")));
      pad_weight(reverse, 1);
    }
    position_ = add_weight("position_embedding/embeddings", {rows, size});
    return {ids[0], ids[1], size};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId ids = b.cast(inputs[role("inputs")], DType::kInt32);
    const ValueId tokens = to_compute(
        context, rows_of_ids(b, context.weight(token_), ids, config_.integer("vocabulary_size")));
    const Shape shape = b.shape(tokens);
    const ValueId places = table_rows(b, context.weight(position_),
                                      positions(context, inputs, shape[1]), start_index(), shape);
    return b.add(tokens, to_compute(context, places));
  }
  bool makes_mask() const override { return config_.boolean("mask_zero"); }
  ValueId make_mask(CallContext& context, std::span<const ValueId> inputs) const override {
    return nonzero_mask(context.builder, inputs[role("inputs")]);
  }

 private:
  using ConfiguredLayer::add_weight;
  int token_ = kNone, position_ = kNone;
};

}  // namespace

std::vector<LayerEntry> position_layers() {
  return {{"PositionEmbedding", make_as<PositionEmbedding>},
          {"SinePositionEncoding", make_as<SinePositionEncoding>},
          {"RotaryEmbedding", make_as<RotaryEmbedding>},
          {"TokenAndPositionEmbedding", make_as<TokenAndPositionEmbedding>}};
}

}  // namespace meshtrain
