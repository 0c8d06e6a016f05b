// Embedding and ReversibleEmbedding. Source: Keras 3 layers/core.
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/parts.h"

namespace meshtrain {
namespace {

// Layers whose table of ids `pad_to` fills up with rows of zeros: no id names them, and they are no
// classes.
class TableLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  bool casts_inputs() const override { return false; }
  bool casts_weights() const override { return false; }
  bool makes_mask() const override { return config_.boolean("mask_zero"); }
  ValueId make_mask(CallContext& context, std::span<const ValueId> inputs) const override {
    return nonzero_mask(context.builder, inputs[0]);
  }

 protected:
  void add_table() {
    table_ = add_weight("embeddings", {rows(), config_.integer("output_dim")});
    pad_weight(table_, 0);
  }
  int64_t rows() const { return config_.integer("input_dim"); }
  ValueId look_up(CallContext& context, ValueId input) const {
    Builder& b = context.builder;
    const ValueId ids = b.cast(input, DType::kInt32);
    return to_compute(context, rows_of_ids(b, context.weight(table_), ids, rows()));
  }

  int table_ = kNone;
};

// ids of any shape -> ids.shape + (output_dim); embeddings (input_dim, output_dim). Ids that come
// from the data have been checked (engine/run_data.h); of others those outside take the nearest
// row.
class Embedding final : public TableLayer {
 public:
  using TableLayer::TableLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    add_table();
    Shape output = inputs[0];
    output.push_back(config_.integer("output_dim"));
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return look_up(context, inputs[0]);
  }
};

// The mask of steps where a feature differs from mask_value; other steps become zeros.
class Masking final : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (!is_failed(output) && output.size() != 3) {
      shape_error(diagnostics, inputs, "it needs (batch, steps, features)")
          .help("reshape its input, or use `mask_zero` of an Embedding for ids");
      return failed_shape();
    }
    return output;
  }
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    return b.mul(inputs[0], b.cast(valid(b, inputs[0], true), b.dtype(inputs[0])));
  }
  bool makes_mask() const override { return true; }
  ValueId make_mask(CallContext& context, std::span<const ValueId> inputs) const override {
    return valid(context.builder, inputs[0], false);
  }

 private:
  ValueId valid(Builder& b, ValueId x, bool keepdims) const {
    const ValueId differs = b.binary("ne", x, b.constant(config_.number("mask_value"), b.dtype(x)));
    const ValueId any = b.reduce_max(b.cast(differs, DType::kInt32), {last_axis(b, x)}, keepdims);
    return b.cast(any, DType::kBool);
  }
};

// As Embedding; called with `reverse`, hidden states (..., output_dim) -> logits (..., input_dim):
// products with the rows of the same table or, untied, with columns of another one.
class ReversibleEmbedding final : public TableLayer {
 public:
  using TableLayer::TableLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const int64_t columns = config_.integer("output_dim");
    Shape output = inputs[0];
    if (is_reverse() && (output.size() < 2 || output.back() != columns)) {
      shape_error(diagnostics, inputs,
                  fmt::format("reversed, it takes {} features in the last dimension", columns))
          .help("set `output_dim` to the size of the hidden states");
      return failed_shape();
    }
    add_table();
    if (!config_.boolean("tie_weights")) {
      const int reverse = add_weight("reverse_embeddings", {columns, rows()}, variable_dtype,
                                     make_initializer(config_.arg("embeddings_initializer")));
      pad_weight(reverse, 1);
    }
    if (is_reverse()) {
      output.back() = rows();
    } else {
      output.push_back(columns);
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    return is_reverse()
               ? to_compute(context, reversed_embedding(context, *this, context.weight, inputs[0]))
               : look_up(context, inputs[0]);
  }

  bool makes_mask() const override { return TableLayer::makes_mask() && !is_reverse(); }

 private:
  bool is_reverse() const { return use.call_flag("reverse"); }
};

}  // namespace

ValueId reversed_embedding(CallContext& context, const Layer& embedding,
                           const std::function<ValueId(int)>& weight, ValueId states) {
  constexpr int kTable = 0, kReverse = 1;  // in the order of add_weight()
  MESHTRAIN_CHECK(embedding.weights[kTable].path.ends_with("/embeddings"), "{} comes first",
                  embedding.weights[kTable].path);
  Builder& b = context.builder;
  const ConfigObject& config = *embedding.config();
  const std::string given = string_or(config, "reverse_dtype", "");
  const DType type = given.empty() ? context.compute_dtype : parse_dtype(given).value();
  const ValueId x = b.cast(states, type);
  const size_t rank = b.shape(x).size();
  std::string outer;
  for (size_t i = 0; i + 1 < rank; ++i) {
    outer += static_cast<char>('a' + i);
  }
  ValueId logits =
      boolean_or(config, "tie_weights", true)
          ? b.einsum(outer + "y,zy->" + outer + "z", {x, b.cast(weight(kTable), type)})
          : b.einsum(outer + "y,yz->" + outer + "z", {x, b.cast(weight(kReverse), type)});
  const auto classes = static_cast<int64_t>(rank) - 1;
  const int64_t rows = config.integer("input_dim");
  if (b.shape(logits).back() > rows)
    logits = b.slice(logits, classes, 0, rows);
  if (const double cap = number_or(config, "logit_soft_cap", 0); cap != 0) {
    logits = b.mul(b.unary("tanh", b.div(logits, cap)), cap);
  }
  return logits;
}

std::vector<LayerEntry> embedding_layers() {
  return {{"Embedding", make_as<Embedding>},
          {"ReversibleEmbedding", make_as<ReversibleEmbedding>},
          {"Masking", make_as<Masking>}};
}

}  // namespace meshtrain
