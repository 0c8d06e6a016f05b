// Layers: keras-semantics 5.1, 5.2, 5.7; Keras 3.16 keras/src/layers.
#include <algorithm>

#include "config/catalogue.h"

namespace meshtrain {
namespace {

using Args = std::vector<Spec>;

Spec initializer(const char* name, const char* default_text) {
  return object(name, ValueKind::kObject, Category::kInitializer, default_text,
                "how the weight gets its first values");
}

Spec activation(const char* default_text) {
  return make_spec("activation", ValueKind::kActivation, default_text,
                   "function applied to the output; null = linear");
}

Spec later(const char* name, const char* help) {
  return make_spec(name, ValueKind::kLater, "null", help);
}

Spec axes(const char* name, const char* default_text, const char* help) {
  return make_spec(name, ValueKind::kIntOrList, default_text, help);
}

// Regularizers and constraints of a weight, named as Keras does.
void add_weight_args(Args& args, const char* weight) {
  args.push_back(later((std::string(weight) + "_regularizer").c_str(), "penalty on the weight"));
  args.push_back(later((std::string(weight) + "_constraint").c_str(), "projection of the weight"));
}

// What every layer takes besides its own arguments.
ClassSpec layer(std::string name, std::string help, Args args) {
  const bool is_input = name == "Input";
  for (const Spec& common :
       {text("name", "null", "name in variable paths; Keras' automatic name when null"),
        boolean("trainable", "true", "whether fit changes its weights"),
        choice("dtype", {"float32", "float64"}, "null", "dtype policy of this layer"),
        later("activity_regularizer", "penalty on the output"),
        make_spec("inputs", ValueKind::kNames, "null",
                  "names of the earlier layers it takes; null = the entry before it")}) {
    const bool has = std::any_of(args.begin(), args.end(),
                                 [&](const Spec& own) { return own.name == common.name; });
    if (!has && !(is_input && (common.name == "inputs" || common.name == "trainable" ||
                               common.name == "activity_regularizer"))) {
      args.push_back(common);
    }
  }
  ClassSpec spec;
  spec.name = std::move(name);
  spec.help = std::move(help);
  spec.args = std::move(args);
  return spec;
}

Spec shape(const char* name, const char* help) {
  return make_spec(name, ValueKind::kShape, "null", help);
}

Spec required_shape(const char* name, const char* help) {
  Spec spec = make_spec(name, ValueKind::kShape, "", help);
  return spec.required();
}

Spec size(const char* name, const char* help) {
  return integer(name, "", help).required().least(1).most(kMaxSize);
}

Args dense_args(Args args) {
  args.push_back(initializer("kernel_initializer", "glorot_uniform"));
  args.push_back(initializer("bias_initializer", "zeros"));
  add_weight_args(args, "kernel");
  add_weight_args(args, "bias");
  args.push_back(later("lora_rank", "low-rank adaptation"));
  return args;
}

std::vector<ClassSpec> core() {
  return {
      layer("Input", "an input of the model; the shape is without the batch",
            {required_shape("shape", "sizes without the batch; null = unknown")
                 .unknown_ok()
                 .empty_ok(),
             integer("batch_size", "null", "fixed batch size").least(1).most(kMaxSize),
             choice("dtype", {"float32", "float64", "int32", "int64", "uint8", "bool"}, "null",
                    "element type; the dtype policy's when null")}),
      layer("Flatten", "(batch, ...) to (batch, product)",
            {choice("data_format", {"channels_last", "channels_first"}, "null",
                    "channels_first moves the channels last before")}),
      layer("Reshape", "to another shape with as many elements",
            {required_shape("target_shape", "sizes without the batch; one may be -1")
                 .infer_ok()
                 .empty_ok()}),
      layer("Permute", "reorders dimensions",
            {required_shape("dims", "a permutation, counted from 1, without the batch")}),
      layer("Dense", "act(x K + b)",
            dense_args({size("units", "size of the output"), activation("null"),
                        boolean("use_bias", "true", "whether b is added")})),
      layer(
          "EinsumDense", "act(einsum(equation, x, K) + b)",
          dense_args(
              {text("equation", "", "such as ab,bc->ac or ...x,xy->...y").required(),
               required_shape("output_shape", "sizes of the output without the batch").unknown_ok(),
               activation("null"),
               text("bias_axes", "null", "letters of the output that the bias has")})),
      layer("Embedding", "rows of a table, by integer",
            {size("input_dim", "number of rows"), size("output_dim", "size of a row"),
             initializer("embeddings_initializer", "uniform"),
             later("embeddings_regularizer", "penalty on the table"),
             later("embeddings_constraint", "projection of the table"),
             later("mask_zero", "masking of row 0"), later("weights", "given values"),
             later("lora_rank", "low-rank adaptation")}),
      layer("Dropout", "zeroes a random part while training",
            {number("rate", "", "part that is dropped").required().least(0).most(1),
             shape("noise_shape", "shape of the mask; null = the input's size, 1 = shared")
                 .unknown_ok(),
             integer("seed", "null", "own seed; the config's when null")}),
      layer("Activation", "an activation function as a layer",
            {make_spec("activation", ValueKind::kActivation, "", "the function").required()}),
      layer("Identity", "the input itself", {}),
  };
}

std::vector<ClassSpec> activations() {
  return {
      layer("ReLU", "max(x, 0) with variations",
            {number("max_value", "null", "upper limit").least(0),
             number("negative_slope", "0.0", "slope below the threshold").least(0),
             number("threshold", "0.0", "where the identity begins").least(0)}),
      layer("LeakyReLU", "x above 0, negative_slope x below",
            {number("negative_slope", "0.3", "slope below 0")}),
      layer("ELU", "x above 0, alpha (e^x - 1) below", {number("alpha", "1.0", "scale below 0")}),
      layer("Softmax", "exponentials that sum to 1",
            {axes("axis", "-1", "axis, or list of axes, of the sum")}),
  };
}

std::vector<ClassSpec> preprocessing() {
  return {
      layer("Rescaling", "x scale + offset",
            {make_spec("scale", ValueKind::kFloatOrList, "", "factor; a list is per channel")
                 .required(),
             make_spec("offset", ValueKind::kFloatOrList, "0.0", "added; a list is per channel")}),
      layer("Normalization", "(x - mean) / sqrt(variance)",
            {axes("axis", "-1", "axes with statistics of their own; null = one for all").nullable(),
             make_spec("mean", ValueKind::kFloatOrList, "null", "given mean"),
             make_spec("variance", ValueKind::kFloatOrList, "null", "given variance").least(0),
             boolean("invert", "false", "undo the normalization")}),
  };
}

std::vector<ClassSpec> merging() {
  std::vector<ClassSpec> out;
  for (const char* name : {"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"}) {
    out.push_back(layer(name, "element by element over its inputs, with broadcasting", {}));
  }
  out.push_back(layer("Concatenate", "inputs one after the other",
                      {integer("axis", "-1", "axis along which they are joined")}));
  out.push_back(
      layer("Dot", "products along an axis of two inputs, per sample",
            {axes("axes", "", "axis, or one for each input").required(),
             boolean("normalize", "false", "normalize along the axes first (cosine similarity)")}));
  out.push_back(layer("Call", "uses an earlier layer again, with the same weights",
                      {text("layer", "", "name of the layer").required()}));
  return out;
}

}  // namespace

std::vector<ClassSpec> layer_classes() {
  std::vector<ClassSpec> out = core();
  for (auto* part : {&activations, &preprocessing, &merging}) {
    for (ClassSpec& spec : part()) {
      out.push_back(std::move(spec));
    }
  }
  return out;
}

}  // namespace meshtrain
