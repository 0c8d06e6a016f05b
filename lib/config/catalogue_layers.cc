// Layers: Keras 3.16 keras/src/layers.
#include <algorithm>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

Args prelu_args() {
  Args args = {initializer_arg("alpha_initializer", "zeros")};
  add_weight_args(args, "alpha");
  args.push_back(axes_arg("shared_axes", "null", "axes along which alpha is shared"));
  return args;
}

std::vector<ClassSpec> core() {
  return {
      layer_class(
          "Input", "an input of the model; the shape is without the batch",
          {required_shape("shape", "sizes without the batch; null = unknown")
               .unknown_ok()
               .empty_ok(),
           integer("batch_size", "null", "fixed batch size of exports; training takes fit's")
               .least(1)
               .most(kMaxSize),
           choice("dtype",
                  {"float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8", "bool"},
                  "null", "element type; the dtype policy's when null")}),
      layer_class("Flatten", "(batch, ...) to (batch, product)",
                  {choice("data_format", {"channels_last", "channels_first"}, "null",
                          "channels_first moves the channels last before")}),
      layer_class("Reshape", "to another shape with as many elements",
                  {required_shape("target_shape", "sizes without the batch; one may be -1")
                       .infer_ok()
                       .empty_ok()}),
      layer_class("Permute", "reorders dimensions",
                  {required_shape("dims", "a permutation, counted from 1, without the batch")
                       .takes("dimensions from 1 on, without the batch: [2, 1] exchanges two")}),
      layer_class("Dense", "act(x K + b)",
                  with_lora(with_kernel_args({size_arg("units", "size of the output"),
                                              activation_arg("null"),
                                              boolean("use_bias", "true", "whether b is added")}))),
      layer_class(
          "EinsumDense", "act(einsum(equation, x, K) + b)",
          with_lora(with_kernel_args(
              {text("equation", "", "such as ab,bc->ac or ...x,xy->...y").required(),
               required_shape("output_shape", "sizes of the output without the batch").unknown_ok(),
               activation_arg("null"),
               text("bias_axes", "null", "letters of the output that the bias has")}))),
      layer_class(
          "Embedding", "rows of a table, by integer",
          with_lora({size_arg("input_dim", "number of rows"),
                     size_arg("output_dim", "size of a row"),
                     initializer_arg("embeddings_initializer", "uniform"),
                     object("embeddings_regularizer", ValueKind::kObject, Category::kRegularizer,
                            "null", "penalty on the table"),
                     object("embeddings_constraint", ValueKind::kObject, Category::kConstraint,
                            "null", "projection of the table after a step"),
                     boolean("mask_zero", "false", "whether id 0 is padding, which a mask marks"),
                     pad_to_arg(), unsupported("weights", "given values")})),
      layer_class("Dropout", "zeroes a random part while training",
                  {number("rate", "", "part that is dropped").required().least(0).most(1),
                   noise_shape_arg(), seed_arg()}),
      layer_class("Activation", "an activation function as a layer",
                  {make_spec("activation", ValueKind::kActivation, "", "the function").required()}),
      layer_class("Identity", "the input itself", {}),
      layer_class("ActivityRegularization", "the input itself, with a penalty on it",
                  {number("l1", "0.0", "times the sum of |x|").least(0),
                   number("l2", "0.0", "times the sum of x^2").least(0)}),
      layer_class("Masking", "marks steps whose features all are mask_value",
                  {number("mask_value", "0.0", "the value of padding")}),
  };
}

std::vector<ClassSpec> activations() {
  return {
      layer_class("ReLU", "max(x, 0) with variations",
                  {number("max_value", "null", "upper limit").least(0),
                   number("negative_slope", "0.0", "slope below the threshold").least(0),
                   number("threshold", "0.0", "where the identity begins").least(0)}),
      layer_class("LeakyReLU", "x above 0, negative_slope x below",
                  {number("negative_slope", "0.3", "slope below 0").least(0)}),
      layer_class("PReLU", "x above 0, alpha x below, alpha a weight", prelu_args()),
      layer_class("ELU", "x above 0, alpha (e^x - 1) below",
                  {number("alpha", "1.0", "scale below 0")}),
      layer_class("Softmax", "exponentials that sum to 1",
                  {axes_arg("axis", "-1", "axis, or list of axes, of the sum")}),
  };
}

Spec size(const char* name, const char* default_text, const char* help) {
  return integer(name, default_text, help).least(1).most(kMaxSize);
}

ClassSpec stft_spectrogram() {
  return layer_class(
      "STFTSpectrogram", "Fourier transforms of windows of a signal, by kernels that may train",
      {choice("mode", {"log", "magnitude", "psd", "real", "imag", "angle", "stft"}, "log",
              "what the output is: log of the magnitude, magnitude, power, angle, or parts of the "
              "transform"),
       size("frame_length", "256", "samples of a window"),
       size("frame_step", "null",
            "samples from window to window; half of `frame_length` when null"),
       size("fft_length", "null",
            "twice the bands but one; the next power of two from `frame_length` on when null"),
       stft_window_arg(), stft_periodic_arg(), stft_scaling_arg(),
       choice("padding", {"valid", "same"}, "valid",
              "same: as many windows as steps fit the input"),
       boolean("expand_dims", "false",
               "channels as a dimension of their own, for layers of images"),
       data_format_arg()});
}

ClassSpec mel_spectrogram() {
  return layer_class(
      "MelSpectrogram", "the power of windows of a signal by bins of the mel scale",
      {integer("fft_length", "2048", "samples of a Fourier transform").least(2).most(65536),
       size("sequence_stride", "512", "samples from window to window"),
       size("sequence_length", "null", "samples of a window; `fft_length` when null"),
       choice("window", {"hann", "hamming"}, "hann", "factor on the samples").nullable(),
       size("sampling_rate", "16000", "samples of a second"),
       size("num_mel_bins", "128", "bins of the output"),
       number("min_freq", "20.0", "where the first bin begins, in hertz").least(0),
       number("max_freq", "null", "where the last bin ends; half of `sampling_rate` when null")
           .above(0),
       boolean("power_to_db", "true", "decibels, not power"),
       number("top_db", "80.0", "decibels below the largest value at which the output ends")
           .least(0),
       number("mag_exp", "2.0", "exponent of the magnitude").above(0),
       number("min_power", "1e-10", "powers below it count as it").above(0),
       number("ref_power", "1.0", "the power of 0 decibels")});
}

std::vector<ClassSpec> preprocessing() {
  return {
      layer_class(
          "Rescaling", "x scale + offset",
          {make_spec("scale", ValueKind::kFloatOrList, "", "factor; a list is per channel")
               .required(),
           make_spec("offset", ValueKind::kFloatOrList, "0.0", "added; a list is per channel")}),
      layer_class(
          "Normalization", "(x - mean) / sqrt(variance)",
          {axes_arg("axis", "-1", "axes with statistics of their own; null = one for all")
               .nullable(),
           make_spec("mean", ValueKind::kFloatOrList, "null", "given mean"),
           make_spec("variance", ValueKind::kFloatOrList, "null", "given variance").least(0),
           boolean("invert", "false", "undo the normalization")}),
      layer_class("CategoryEncoding", "a number for each id: 1 where it is there, or how often",
                  {integer("num_tokens", "", "number of ids").required().least(1).most(kMaxSize),
                   choice("output_mode", {"one_hot", "multi_hot", "count"}, "multi_hot",
                          "one row for each id, or for all ids of the last axis"),
                   unsupported("sparse", "sparse tensors")}),
      layer_class("Discretization", "bins of numbers",
                  {make_spec("bin_boundaries", ValueKind::kFloatOrList, "null",
                             "where bins begin, ascending; from the training data when null"),
                   integer("num_bins", "null", "how many, of equally many values of the data")
                       .least(2)
                       .most(100000),
                   number("epsilon", "0.01", "part of the values that adapting may pass over")
                       .above(0)
                       .below(1),
                   choice("output_mode", {"int", "one_hot", "multi_hot", "count"}, "int",
                          "ids of bins, or as CategoryEncoding"),
                   unsupported("sparse", "sparse tensors")}),
      stft_spectrogram(),
      mel_spectrogram(),
  };
}

std::vector<ClassSpec> merging() {
  std::vector<ClassSpec> out;
  for (const char* name : {"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"}) {
    out.push_back(layer_class(name, "element by element over its inputs, with broadcasting", {}));
  }
  out.push_back(layer_class("Concatenate", "inputs one after the other",
                            {integer("axis", "-1", "axis along which they are joined")}));
  out.push_back(layer_class(
      "Dot", "products along an axis of two inputs, per sample",
      {axes_arg("axes", "", "axis, or one for each input").required(),
       boolean("normalize", "false", "normalize along the axes first (cosine similarity)")}));
  out.push_back(
      layer_class("Lambda", "an expression of its inputs, by name, with the functions of keras.ops",
                  with_function({make_spec("names", ValueKind::kTextList, "null",
                                           "names of the inputs in the function; null: as "
                                           "`inputs` has them, by the keys of a map")
                                     .nullable()})));
  // Of networks of keras.applications.
  out.push_back(layer_class("CustomScaleLayer", "the first input and `scale` times the second",
                            {number("scale", "", "factor of the second input").required()}));
  out.push_back(layer_class("LayerScale", "each channel times a weight",
                            {number("init_values", "", "what the weights begin with").required(),
                             size_arg("projection_dim", "number of channels")}));
  out.push_back(layer_class("StochasticDepth", "drops whole samples in training",
                            {number("drop_path_rate", "", "part of the samples that is dropped")
                                 .required()
                                 .least(0)
                                 .most(1),
                             seed_arg()}));
  // How it computes is the layer's own matter.
  out.push_back(make_class("Call", "uses an earlier layer again, with the same weights",
                           {text("layer", "", "name of the layer").required(), name_arg(),
                            inputs_arg(), shared_call_arg()}));
  out.push_back(repeat_class());
  return out;
}

// Keras' second names of some layers: MaxPool2D, Convolution2D, ...
void add_second_name(ClassSpec& spec) {
  static const std::pair<std::string_view, std::string_view> kNames[] = {
      {"Conv", "Convolution"},
      {"SeparableConv", "SeparableConvolution"},
      {"MaxPooling", "MaxPool"},
      {"AveragePooling", "AvgPool"},
      {"GlobalMaxPooling", "GlobalMaxPool"},
      {"GlobalAveragePooling", "GlobalAvgPool"}};
  const size_t digit = spec.name.find_first_of("123");
  for (const auto& [first, second] : kNames) {
    if (digit != std::string::npos && std::string_view(spec.name).substr(0, digit) == first) {
      spec.aliases.push_back(std::string(second) + spec.name.substr(digit));
    }
  }
  if (spec.name == "Input") {
    spec.aliases.emplace_back("InputLayer");
  }
}

}  // namespace

std::vector<ClassSpec> layer_classes() {
  std::vector<ClassSpec> out = core();
  for (auto* part :
       {&activations, &preprocessing, &merging, &attention_layer_classes, &recurrent_layer_classes,
        &convolution_layer_classes, &pooling_layer_classes, &spatial_layer_classes,
        &normalization_layer_classes, &augmentation_layer_classes}) {
    for (ClassSpec& spec : part()) {
      out.push_back(std::move(spec));
    }
  }
  std::for_each(out.begin(), out.end(), add_second_name);
  return out;
}

}  // namespace meshtrain
