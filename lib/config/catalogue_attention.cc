// Layers of attention and of positions: Keras 3.16 keras/src/layers/attention, Keras Hub 0.32
// keras_hub/src/layers/modeling.
#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

Spec causal_flag() {
  return boolean("use_causal_mask", "null", "whether a step sees only itself and those before");
}
Spec scores_flag() {
  return boolean("return_attention_scores", "null",
                 "a further output: the weights of the values, `<name>.attention_scores`");
}
Spec reverse_flag() {
  return boolean("reverse", "null", "from hidden states to logits");
}
Spec start_index() {
  return integer("start_index", "null", "position of the first step").least(0).most(kMaxSize);
}

// The argument `call`: what Keras takes when a layer is called.
Spec call_arg(const Section& fields) {
  return section("call", fields, "arguments of this call of the layer");
}

const Section& causal_call() {
  static const Section fields{"call", {causal_flag()}};
  return fields;
}
const Section& attention_call() {
  static const Section fields{"call", {causal_flag(), scores_flag()}};
  return fields;
}
const Section& position_call() {
  static const Section fields{"call", {start_index()}};
  return fields;
}
const Section& reverse_call() {
  static const Section fields{"call", {reverse_flag()}};
  return fields;
}

// Those of both projected attentions, from `dropout` on.
void add_projected_args(Args& args) {
  args.push_back(boolean("flash_attention", "null", "accepted; a fused kernel computes it anyway"));
  args = with_kernel_args(std::move(args));
  args.push_back(boolean("use_gate", "false", "gates the heads by a sigmoid of the query"));
  args.push_back(seed_arg());
  args.push_back(object("rotary", ValueKind::kObject, Category::kLayer, "null",
                        "a RotaryEmbedding of query and key heads"));
  args.push_back(call_arg(attention_call()));
}

Spec dropout_arg() {
  return number("dropout", "0.0", "part of the attention weights that is dropped").least(0).most(1);
}
Spec window_arg() {
  return integer("sliding_window", "null", "steps at this distance and beyond are not seen")
      .least(1)
      .most(kMaxSize);
}

ClassSpec with_roles(ClassSpec spec) {
  spec.has_roles = true;
  return spec;
}

ClassSpec multi_head() {
  Args args = {
      size_arg("num_heads", "number of heads"),
      size_arg("key_dim", "size of a head of query and key"),
      integer("value_dim", "null", "size of a head of value; key_dim when null")
          .least(1)
          .most(kMaxSize),
      dropout_arg(),
      boolean("use_bias", "true", "whether the projections add a bias"),
      shape_arg("output_shape", "sizes of the output after the steps; null = the query's features")
          .empty_ok(),
      axes_arg("attention_axes", "null", "dimensions attention is over; null = all but the batch"),
      window_arg()};
  add_projected_args(args);
  return with_roles(layer_class("MultiHeadAttention",
                                "attention of several heads between projections", std::move(args)));
}

ClassSpec group_query() {
  Args args = {size_arg("head_dim", "size of a head"),
               size_arg("num_query_heads", "number of heads of the query"),
               size_arg("num_key_value_heads", "number of heads of key and value"),
               dropout_arg(),
               boolean("use_bias", "true", "whether the projections add a bias"),
               window_arg()};
  add_projected_args(args);
  ClassSpec spec = with_roles(
      layer_class("GroupQueryAttention", "attention whose query heads share heads of key and value",
                  std::move(args)));
  spec.aliases = {"GroupedQueryAttention"};
  return spec;
}

Args rotary_args() {
  return {
      number("max_wavelength", "10000", "longest wavelength").above(0),
      number("scaling_factor", "1.0", "by which positions are stretched").above(0),
      choice("rope_type", {"linear", "dynamic", "yarn"}, "linear", "how they are stretched"),
      number("beta_fast", "32.0", "yarn: rotations from which a frequency is kept").above(0),
      number("beta_slow", "1.0", "yarn: rotations up to which it is divided").above(0),
      integer("original_max_position_embeddings", "4096", "yarn: steps of the training")
          .least(1)
          .most(kMaxSize),
      boolean("truncate", "true", "yarn: whole limits of the ramp"),
      integer("sequence_axis", "1", "dimension of the steps"),
      integer("feature_axis", "-1", "dimension of the features"),
      integer("denominator_dim", "null", "features that frequencies are spread over")
          .least(2)
          .most(kMaxSize),
      number("frequency_adjustment_factor", "null", "Llama 3.1: divisor of low frequencies")
          .above(0),
      number("low_freq_factor", "null", "Llama 3.1: turns below which they are divided").above(0),
      number("high_freq_factor", "null", "Llama 3.1: turns above which they are kept").above(0),
      integer("pretraining_sequence_length", "null", "Llama 3.1: steps of the training")
          .least(1)
          .most(kMaxSize),
      call_arg(position_call())};
}

ClassSpec reversible_embedding() {
  return layer_class(
      "ReversibleEmbedding", "rows of a table, and back to logits with `call: {reverse: true}`",
      with_lora({size_arg("input_dim", "number of rows"), size_arg("output_dim", "size of a row"),
                 boolean("tie_weights", "true", "whether logits are products with the same table"),
                 initializer_arg("embeddings_initializer", "uniform"),
                 object("embeddings_regularizer", ValueKind::kObject, Category::kRegularizer,
                        "null", "penalty on the table"),
                 object("embeddings_constraint", ValueKind::kObject, Category::kConstraint, "null",
                        "projection of the table after a step"),
                 boolean("mask_zero", "false", "whether id 0 is padding, which a mask marks"),
                 choice("reverse_dtype", {"float32", "float64", "bfloat16", "float16"}, "null",
                        "type of the product that gives logits; the compute dtype when null"),
                 number("logit_soft_cap", "null", "c of c tanh(logit / c)").above(0), pad_to_arg(),
                 call_arg(reverse_call())}));
}

ClassSpec token_and_position() {
  return with_roles(layer_class(
      "TokenAndPositionEmbedding", "rows of a table of tokens plus rows of a table of positions",
      {size_arg("vocabulary_size", "number of tokens"),
       size_arg("sequence_length", "number of positions"),
       size_arg("embedding_dim", "size of a row"),
       boolean("tie_weights", "true", "false adds token_embedding/reverse_embeddings"),
       initializer_arg("embeddings_initializer", "uniform"),
       boolean("mask_zero", "false", "whether token 0 is padding, which a mask marks"),
       pad_to_arg(), call_arg(position_call())}));
}

// Keras Hub's blocks, encoder and decoder alike but for what the decoder takes when it is called.
ClassSpec transformer(const char* name, const char* help, const std::vector<Spec>& more) {
  Args args = {
      size_arg("intermediate_dim", "size of the feed-forward network"),
      size_arg("num_heads", "number of heads, each of the input's features over them"),
      dropout_arg(),
      activation_arg("relu"),
      number("layer_norm_epsilon", "1e-5", "added to the variance of the norms").least(0),
      initializer_arg("kernel_initializer", "glorot_uniform"),
      initializer_arg("bias_initializer", "zeros"),
      boolean("normalize_first", "false", "whether the norms come before attention and products")};
  args.insert(args.end(), more.begin(), more.end());
  return with_roles(layer_class(name, help, std::move(args)));
}

ClassSpec sparse_moe() {
  return layer_class(
      "SparseMoE", "feed-forward networks, of which a router chooses some for each step",
      {size_arg("num_experts", "number of feed-forward networks"),
       size_arg("intermediate_dim", "size of the hidden layer of each"),
       integer("top_k", "2", "experts of a step").least(1).most(kMaxSize),
       number("capacity_factor", "null",
              "steps of a sample that an expert takes, over an equal share; null = all")
           .above(0),
       activation_arg("silu"),
       number("router_jitter_noise", "0.0",
              "in training the input times random factors between 1 - this and 1 + this")
           .least(0)
           .most(1),
       number("router_aux_loss_coef", "0.02", "factor of the loss that balances the experts")
           .least(0),
       initializer_arg("kernel_initializer", "glorot_uniform")});
}

ClassSpec vit_patching() {
  return layer_class(
      "ViTPatchingAndEmbedding", "patches of images, a row that trains, and rows of positions",
      {required_shape("image_size", "height and width of the images"),
       required_shape("patch_size", "height and width of a patch"),
       size_arg("hidden_dim", "features of a patch"),
       integer("num_channels", "3", "channels of the images").least(1).most(kMaxSize),
       boolean("use_class_token", "true", "whether a row that trains comes before the patches"),
       boolean("use_patch_bias", "true", "whether the patches get a bias"), data_format_arg()});
}

ClassSpec masked_head() {
  Spec activation = activation_arg("relu");
  activation.name = "intermediate_activation";
  activation.help = "function of the first product; null = linear";
  return with_roles(layer_class(
      "MaskedLMHead", "logits of the tokens at given steps: two products around a norm",
      {integer("vocabulary_size", "null", "number of tokens; null: the rows of token_embedding")
           .least(1)
           .most(kMaxSize),
       text("token_embedding", "null",
            "ReversibleEmbedding or Embedding whose table is the second product; null: a kernel"),
       activation, activation_arg("null"),
       number("layer_norm_epsilon", "1e-5", "added to the variance of the norm").least(0),
       initializer_arg("kernel_initializer", "glorot_uniform"),
       initializer_arg("bias_initializer", "zeros")}));
}

}  // namespace

Spec shared_call_arg() {
  static const Section fields{"call",
                              {causal_flag(), scores_flag(), reverse_flag(), start_index()}};
  return call_arg(fields);
}

std::vector<ClassSpec> attention_layer_classes() {
  return {
      multi_head(),
      group_query(),
      with_roles(layer_class("Attention", "products of queries and keys weigh the values",
                             {boolean("use_scale", "false", "a factor of the scores that trains"),
                              choice("score_mode", {"dot", "concat"}, "dot", "how scores are made"),
                              dropout_arg(), seed_arg(), call_arg(attention_call())})),
      with_roles(layer_class("AdditiveAttention", "sums of queries and keys weigh the values",
                             {boolean("use_scale", "true", "factors of the features that train"),
                              dropout_arg(), call_arg(attention_call())})),
      reversible_embedding(),
      with_roles(layer_class(
          "PositionEmbedding", "rows of a table, one for each step",
          {size_arg("sequence_length", "number of positions"),
           initializer_arg("initializer", "glorot_uniform"), call_arg(position_call())})),
      with_roles(layer_class("SinePositionEncoding", "sines and cosines of the position",
                             {number("max_wavelength", "10000", "longest wavelength").above(0),
                              call_arg(position_call())})),
      with_roles(
          layer_class("RotaryEmbedding", "turns pairs of features by the position", rotary_args())),
      token_and_position(),
      transformer("TransformerEncoder", "attention and a feed-forward network, each with a norm",
                  {}),
      transformer("TransformerDecoder",
                  "causal attention, attention to a second sequence, if there is one, and a "
                  "feed-forward network",
                  {call_arg(causal_call())}),
      sparse_moe(),
      vit_patching(),
      masked_head(),
  };
}

}  // namespace meshtrain
