// Convolution layers: Keras 3.16 keras/src/layers/convolutional.
#include <fmt/format.h>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

Args window_args(bool causal) {
  std::vector<std::string> paddings = {"valid", "same"};
  if (causal) {
    paddings.push_back("causal");
  }
  return {per_dimension("kernel_size", "", "size of the window"),
          per_dimension("strides", "1", "step of the window"),
          choice("padding", paddings, "valid", "same: as many outputs as steps fit the input")};
}

Args operator+(Args first, const Args& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Spec dilation() {
  return per_dimension("dilation_rate", "1", "distance of the window's cells");
}

Args activation_and_bias() {
  return {activation_arg("null"), boolean("use_bias", "true", "whether a bias is added")};
}

// Initializer, regularizer and constraint of "depthwise" and "pointwise" kernels and the bias.
Args weight_args(const std::vector<const char*>& kernels) {
  Args args;
  for (const char* kernel : kernels) {
    args.push_back(
        initializer_arg((std::string(kernel) + "_initializer").c_str(), "glorot_uniform"));
  }
  args.push_back(initializer_arg("bias_initializer", "zeros"));
  for (const char* kernel : kernels) {
    add_weight_args(args, kernel);
  }
  add_weight_args(args, "bias");
  return args;
}

ClassSpec conv(int rank) {
  return layer_class(
      fmt::format("Conv{}D", rank), "act(convolution(x, K) + b)",
      with_lora(with_kernel_args(Args{size_arg("filters", "channels of the output")} +
                                 window_args(rank == 1) + Args{data_format_arg(), dilation()} +
                                 Args{integer("groups", "1", "groups of channels that do not mix")
                                          .least(1)
                                          .most(kMaxSize)} +
                                 activation_and_bias())));
}

ClassSpec conv_transpose(int rank) {
  return layer_class(
      fmt::format("Conv{}DTranspose", rank), "the transpose of a convolution: makes images larger",
      with_kernel_args(Args{size_arg("filters", "channels of the output")} + window_args(false) +
                       Args{per_dimension("output_padding", "null",
                                          "cells added at the end; below the strides", 0),
                            data_format_arg(), dilation()} +
                       activation_and_bias()));
}

Spec multiplier() {
  return integer("depth_multiplier", "1", "outputs of each input channel").least(1).most(kMaxSize);
}

ClassSpec depthwise(int rank) {
  return layer_class(fmt::format("DepthwiseConv{}D", rank), "a convolution of each channel alone",
                     window_args(false) + Args{multiplier(), data_format_arg(), dilation()} +
                         activation_and_bias() + weight_args({"depthwise"}));
}

ClassSpec separable(int rank) {
  return layer_class(fmt::format("SeparableConv{}D", rank),
                     "a depthwise convolution, then one of size 1 that mixes channels",
                     Args{size_arg("filters", "channels of the output")} + window_args(false) +
                         Args{data_format_arg(), dilation(), multiplier()} + activation_and_bias() +
                         weight_args({"depthwise", "pointwise"}));
}

}  // namespace

std::vector<ClassSpec> convolution_layer_classes() {
  return {conv(1),      conv(2),      conv(3),           depthwise(1),      depthwise(2),
          separable(1), separable(2), conv_transpose(1), conv_transpose(2), conv_transpose(3)};
}

}  // namespace meshtrain
