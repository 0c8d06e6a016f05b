// TransformerEncoder and TransformerDecoder: layers that are made of other layers, whose sizes
// follow from the input. Source: Keras Hub 0.32 layers/modeling.
#include <algorithm>
#include <optional>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/parts.h"
#include "nn/roles.h"

namespace meshtrain {
namespace {

class TransformerBlock : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;
  size_t masked_input() const override { return place(input_names()[0]).value_or(0); }

 protected:
  // The input first, then what a map may name beside it; `listed` of them also as a list.
  virtual std::span<const std::string_view> input_names() const = 0;
  virtual size_t listed() const = 0;

  std::optional<size_t> place(std::string_view role) const {
    const auto names = input_names();
    if (use.roles.empty()) {
      const auto at = std::find(names.begin(), names.end(), role) - names.begin();
      return static_cast<size_t>(at) < num_inputs_ ? std::optional<size_t>(at) : std::nullopt;
    }
    const auto found = std::find(use.roles.begin(), use.roles.end(), role);
    return found == use.roles.end() ? std::nullopt
                                    : std::optional<size_t>(found - use.roles.begin());
  }

  // Reports what is no input of the block, sequences of unknown sizes, and too many heads.
  bool check_inputs(std::span<const Shape> inputs, Diagnostics& diagnostics) {
    num_inputs_ = inputs.size();
    const auto names = input_names();
    bool fits = !use.roles.empty() || (!inputs.empty() && inputs.size() <= listed());
    for (const std::string& role : use.roles) {
      fits = fits && std::find(names.begin(), names.end(), role) != names.end();
    }
    if (!fits || !place(names[0])) {
      shape_error(diagnostics, inputs, fmt::format("it takes `{}`", fmt::join(names, "`, `")))
          .help(fmt::format("write `inputs: x`, or a map such as `inputs: {{{}: x}}`", names[0]));
      return false;
    }
    for (const std::string_view name : names) {
      if (!name.ends_with("mask") && place(name) && !is_sequence(inputs[*place(name)])) {
        shape_error(diagnostics, inputs,
                    fmt::format("`{}` must be (batch, steps, features) of known sizes", name))
            .help("put it behind an Embedding, or reshape its input");
        return false;
      }
    }
    const int64_t width = inputs[*place(names[0])].back(), heads = config_.integer("num_heads");
    if (width < heads) {
      argument_error(diagnostics, "num_heads",
                     fmt::format("is {}, more than the {} features of its input", heads, width))
          .help(fmt::format("write at most {}, so that each head has a feature", width));
      return false;
    }
    return true;
  }

  // Whether the mask `role`, if it is there, has the shape (batch, sizes...).
  bool mask_fits(std::span<const Shape> inputs, std::string_view role, Shape sizes,
                 Diagnostics& diagnostics) const {
    sizes.insert(sizes.begin(), kUnknownDim);
    const std::optional<size_t> at = place(role);
    if (!at || inputs[*at] == sizes) {
      return true;
    }
    shape_error(diagnostics, inputs, fmt::format("`{}` must be {}", role, shape_string(sizes)))
        .help("give the Input of the mask that shape, without the batch");
    return false;
  }

  ConfigObject part_object(std::string_view class_name) const {
    ConfigObject object = default_object(Category::kLayer, std::string(class_name));
    object.loc = loc;
    object.args["trainable"].data = trainable;
    for (const char* name : {"kernel_initializer", "bias_initializer"}) {
      if (class_name != "LayerNormalization" && object.args.contains(name)) {
        object.args[name] = config_.arg(name);
      }
    }
    return object;
  }

  void build_norm(Part& part, const Shape& x, Diagnostics& diagnostics) {
    ConfigObject object = part_object("LayerNormalization");
    object.args["epsilon"] = config_.arg("layer_norm_epsilon");
    build_part(part, object, {&x, 1}, {}, diagnostics);
  }

  // The two products of the feed-forward network; its norm is built by the caller, in its order.
  void build_feedforward(const Shape& x, Diagnostics& diagnostics) {
    ConfigObject object = part_object("Dense");
    object.args["units"] = config_.arg("intermediate_dim");
    object.args["activation"] = config_.arg("activation");
    const Shape inner = build_part(intermediate_, object, {&x, 1}, {}, diagnostics);
    object = part_object("Dense");
    object.args["units"].data = x.back();
    if (!is_failed(inner)) {
      build_part(output_, object, {&inner, 1}, {}, diagnostics);
    }
    build_dropout(feedforward_dropout_, x, diagnostics);
  }

  // Attention of x to `value` with the mask of keys `padding` and the mask `attention`, if given.
  void build_attention(Part& part, Part& norm, Part& dropout, std::span<const Shape> inputs,
                       LayerUse part_use, Diagnostics& diagnostics) {
    ConfigObject object = part_object("MultiHeadAttention");
    const int64_t heads = config_.integer("num_heads");
    object.args["num_heads"].data = heads;
    object.args["key_dim"].data = inputs[0].back() / heads;
    object.args["dropout"] = config_.arg("dropout");
    build_part(part, object, inputs, std::move(part_use), diagnostics);
    build_norm(norm, inputs[0], diagnostics);
    build_dropout(dropout, inputs[0], diagnostics);
  }

  // x + f(norm(x)) with normalize_first, else norm(x + f(x)).
  template <class F>
  ValueId residual(CallContext& context, const Part& norm, const Part& dropout, ValueId x,
                   F f) const {
    const bool is_first = config_.boolean("normalize_first");
    const ValueId y = f(is_first ? call_part(context, norm, x) : x);
    const ValueId sum = context.builder.add(call_part(context, dropout, y), x);
    return is_first ? sum : call_part(context, norm, sum);
  }

  ValueId feedforward(CallContext& context, ValueId x) const {
    return residual(context, feedforward_norm_, feedforward_dropout_, x, [&](ValueId y) {
      return call_part(context, output_, call_part(context, intermediate_, y));
    });
  }

  Part feedforward_norm_{"feedforward_layer_norm"};

 private:
  void build_dropout(Part& part, const Shape& x, Diagnostics& diagnostics) {
    ConfigObject object = part_object("Dropout");
    object.args["rate"] = config_.arg("dropout");
    build_part(part, object, {&x, 1}, {}, diagnostics);
  }
  static bool is_sequence(const Shape& shape) {
    return shape.size() == 3 && shape[1] != kUnknownDim && shape[2] != kUnknownDim;
  }

  size_t num_inputs_ = 1;
  Part intermediate_{"feedforward_intermediate_dense"}, output_{"feedforward_output_dense"},
      feedforward_dropout_{"feedforward_dropout"};
};

// Operands of an attention and what they are, for Layer::use.
template <class T>
struct Operands {
  std::vector<T> values;
  std::vector<std::string> roles;

  void add(std::string role, const T& value) {
    roles.push_back(std::move(role));
    values.push_back(value);
  }
};

class TransformerEncoder final : public TransformerBlock {
 public:
  using TransformerBlock::TransformerBlock;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[*place("inputs")];
    if (!mask_fits(inputs, "padding_mask", {x[1]}, diagnostics) ||
        !mask_fits(inputs, "attention_mask", {x[1], x[1]}, diagnostics)) {
      return failed_shape();
    }
    const Operands<Shape> operands = operands_of(inputs, x);
    build_attention(attention_, norm_, dropout_, operands.values, {operands.roles}, diagnostics);
    build_norm(feedforward_norm_, x, diagnostics);
    build_feedforward(x, diagnostics);
    return x;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    const size_t at = *place("inputs");
    const ValueId x = residual(context, norm_, dropout_, inputs[at], [&](ValueId y) {
      const Operands<ValueId> operands = operands_of(inputs, y);
      // The mask that came with the input is also one of queries, as in Keras.
      std::vector<ValueId> masks(operands.values.size(), kNone);
      masks[0] = context.masks.empty() ? kNone : context.masks[at];
      attention_.layer->use.roles = operands.roles;
      return call_part(context, attention_, operands.values, masks);
    });
    return feedforward(context, x);
  }

 protected:
  std::span<const std::string_view> input_names() const override {
    static constexpr std::string_view kNames[] = {"inputs", "padding_mask", "attention_mask"};
    return kNames;
  }
  size_t listed() const override { return 1; }

 private:
  template <class T>
  Operands<T> operands_of(std::span<const T> inputs, const T& x) const {
    Operands<T> out;
    out.add("query", x);
    if (const auto at = place("padding_mask")) {
      out.add("key_mask", inputs[*at]);
    }
    if (const auto at = place("attention_mask")) {
      out.add("attention_mask", inputs[*at]);
    }
    return out;
  }

  Part attention_{"self_attention_layer"}, norm_{"self_attention_layer_norm"},
      dropout_{"self_attention_dropout"};
};

class TransformerDecoder final : public TransformerBlock {
 public:
  using TransformerBlock::TransformerBlock;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics) || !check_masks(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape x = inputs[*place("decoder_sequence")];
    const bool is_cross = place("encoder_sequence").has_value();
    if (self_.layer != nullptr && is_cross != (cross_.layer != nullptr)) {
      shape_error(diagnostics, inputs, "it is used with an `encoder_sequence` and without one")
          .help("give the second use a layer of its own");
      return failed_shape();
    }
    build_attention(self_, self_norm_, self_dropout_, {&x, 1}, {}, diagnostics);
    if (is_cross) {
      const Shape sequences[] = {x, inputs[*place("encoder_sequence")]};
      build_attention(cross_, cross_norm_, cross_dropout_, sequences, {}, diagnostics);
    }
    build_feedforward(x, diagnostics);
    build_norm(feedforward_norm_, x, diagnostics);
    return x;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    const size_t at = *place("decoder_sequence");
    ValueId x = residual(context, self_norm_, self_dropout_, inputs[at], [&](ValueId y) {
      Operands<ValueId> operands;
      operands.add("query", y);
      add_masks(context, inputs, "decoder", operands);
      return attend(context, self_, operands, is_causal());
    });
    if (const auto other = place("encoder_sequence")) {
      x = residual(context, cross_norm_, cross_dropout_, x, [&](ValueId y) {
        Operands<ValueId> operands;
        operands.add("query", y);
        operands.add("value", inputs[*other]);
        add_masks(context, inputs, "encoder", operands);
        return attend(context, cross_, operands, false);
      });
    }
    return feedforward(context, x);
  }

 protected:
  std::span<const std::string_view> input_names() const override {
    static constexpr std::string_view kNames[] = {"decoder_sequence",     "encoder_sequence",
                                                  "decoder_padding_mask", "decoder_attention_mask",
                                                  "encoder_padding_mask", "encoder_attention_mask"};
    return kNames;
  }
  size_t listed() const override { return 2; }

 private:
  bool is_causal() const {
    const ConfigValue* const given = use.call_argument("use_causal_mask");
    return given == nullptr || given->boolean();
  }

  bool check_masks(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    const int64_t steps = inputs[*place("decoder_sequence")][1];
    const auto other = place("encoder_sequence");
    if (!other && (place("encoder_padding_mask") || place("encoder_attention_mask"))) {
      shape_error(diagnostics, inputs, "it has a mask of an `encoder_sequence` and no such input")
          .help("name the `encoder_sequence` in `inputs`, or leave its mask out");
      return false;
    }
    const int64_t keys = other ? inputs[*other][1] : 0;
    return mask_fits(inputs, "decoder_padding_mask", {steps}, diagnostics) &&
           mask_fits(inputs, "decoder_attention_mask", {steps, steps}, diagnostics) &&
           mask_fits(inputs, "encoder_padding_mask", {keys}, diagnostics) &&
           mask_fits(inputs, "encoder_attention_mask", {steps, keys}, diagnostics);
  }

  // The masks of the sequence of this side: a padding mask that is given, else the mask that came
  // with the sequence, is one of keys only.
  void add_masks(CallContext& context, std::span<const ValueId> inputs, const std::string& side,
                 Operands<ValueId>& operands) const {
    const auto padding = place(side + "_padding_mask"), attention = place(side + "_attention_mask");
    const ValueId own = context.masks.empty() ? kNone : context.masks[*place(side + "_sequence")];
    const ValueId keys = padding ? inputs[*padding] : own;
    if (keys != kNone) {
      operands.add("key_mask", keys);
    }
    if (attention) {
      operands.add("attention_mask", inputs[*attention]);
    }
  }

  ValueId attend(CallContext& context, const Part& part, const Operands<ValueId>& operands,
                 bool causal) const {
    ConfigObject arguments = *part.layer->config();
    ConfigValue flag;
    flag.data = causal;
    arguments.args["call"].data = ConfigValue::Dict{{"use_causal_mask", flag}};
    part.layer->use = {operands.roles, std::make_shared<const ConfigObject>(std::move(arguments))};
    return call_part(context, part, operands.values);
  }

  Part self_{"self_attention"}, self_norm_{"self_attention_layer_norm"},
      self_dropout_{"self_attention_dropout"};
  Part cross_{"cross_attention"}, cross_norm_{"cross_attention_layer_norm"},
      cross_dropout_{"cross_attention_dropout"};
};

}  // namespace

std::vector<LayerEntry> transformer_layers() {
  return {{"TransformerEncoder", make_as<TransformerEncoder>},
          {"TransformerDecoder", make_as<TransformerDecoder>}};
}

}  // namespace meshtrain
