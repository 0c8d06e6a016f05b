// Recurrent layers: Keras 3.16 keras/src/layers/rnn.
#include <fmt/format.h>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

// `first`: the arguments before `use_bias`.
Args cell_args(Args first, Args own_flags) {
  Args args = std::move(first);
  args.push_back(boolean("use_bias", "true", "whether a bias is added"));
  args = with_kernel_args(std::move(args));
  args.push_back(initializer_arg("recurrent_initializer", "orthogonal"));
  add_weight_args(args, "recurrent");
  args.push_back(number("dropout", "0.0",
                        "part of the input's features that is dropped, the same at each step")
                     .least(0)
                     .most(1));
  args.push_back(number("recurrent_dropout", "0.0",
                        "part of the state that the product of each gate does not see, the same at "
                        "each step")
                     .least(0)
                     .most(1));
  args.push_back(seed_arg());
  args.insert(args.end(), own_flags.begin(), own_flags.end());
  return args;
}

// The argument `call`: how the layer is called.
Spec mask_call_arg() {
  static const Section fields{
      "call",
      {boolean("use_mask", "null",
               "false: steps that the mask leaves out change the state, too, as in Keras where "
               "initial states are given; the mask is passed on")}};
  return section("call", fields, "arguments of this call of the layer");
}

// What every layer of cells has beside them.
Args with_sequence_args(Args args) {
  args.push_back(boolean("return_sequences", "false", "the states of all steps, not the last one"));
  args.push_back(boolean("go_backwards", "false", "from the last step to the first"));
  args.push_back(boolean(
      "return_state", "false",
      "states as further outputs: NAME.state_h, of LSTM also NAME.state_c; of several cells "
      "NAME.state_1_h, NAME.state_1_c, NAME.state_2_h, ..."));
  args.push_back(boolean("stateful", "false",
                         "whether a batch begins with the states that the batch before it left; "
                         "needs `batch_size` of the Inputs"));
  args.push_back(boolean("zero_output_for_mask", "false",
                         "zeros at steps that a mask leaves out, not the state before them"));
  args.push_back(boolean("unroll", "false", "accepted; time is one operation anyway"));
  args.push_back(mask_call_arg());
  return args;
}

Spec gate_activation() {
  Spec spec = activation_arg("sigmoid");
  spec.name = "recurrent_activation";
  spec.help = "of the gates";
  return spec;
}
Args with_cudnn(Args args) {
  args.push_back(text("use_cudnn", "auto", "accepted; the program has its own kernels"));
  return with_sequence_args(std::move(args));
}

Spec units_arg() {
  return size_arg("units", "size of the state");
}
Args simple_args() {
  return cell_args({units_arg(), activation_arg("tanh")}, {});
}
Args lstm_args() {
  return cell_args(
      {units_arg(), activation_arg("tanh"), gate_activation()},
      {boolean("unit_forget_bias", "true", "whether the bias of forgetting begins as one")});
}
Args gru_args() {
  return cell_args({units_arg(), activation_arg("tanh"), gate_activation()},
                   {boolean("reset_after", "true", "whether the reset gate follows the product")});
}
ClassSpec conv_lstm(int rank) {
  return layer_class(
      fmt::format("ConvLSTM{}D", rank),
      "LSTM over images: its products with kernels are convolutions",
      with_sequence_args(cell_args(
          {size_arg("filters", "channels of the state"),
           per_dimension("kernel_size", "", "size of both windows"),
           per_dimension("strides", "1", "step of the window over the inputs"),
           choice("padding", {"valid", "same"}, "valid",
                  "of the inputs; same: as many outputs as steps fit the input"),
           data_format_arg(),
           per_dimension("dilation_rate", "1", "distance of the cells of the inputs' window"),
           activation_arg("tanh"), gate_activation()},
          {boolean("unit_forget_bias", "true", "whether the bias of forgetting begins as one")})));
}

}  // namespace

std::vector<ClassSpec> recurrent_layer_classes() {
  return {
      layer_class("SimpleRNN", "h = act(x K + h R + b), step by step",
                  with_sequence_args(simple_args())),
      layer_class("LSTM", "a state with gates for input, forgetting and output",
                  with_cudnn(lstm_args())),
      layer_class("GRU", "a state with gates for update and reset", with_cudnn(gru_args())),
      conv_lstm(1),
      conv_lstm(2),
      conv_lstm(3),
      layer_class("RNN", "a cell, or one after the other, over all steps",
                  with_sequence_args({object("cell", ValueKind::kObject, Category::kLayer, "",
                                             "a cell, or a list of them: StackedRNNCells")
                                          .required()})),
      layer_class("SimpleRNNCell", "the cell of SimpleRNN, for RNN", simple_args()),
      layer_class("LSTMCell", "the cell of LSTM, for RNN", lstm_args()),
      layer_class("GRUCell", "the cell of GRU, for RNN", gru_args()),
      layer_class(
          "StackedRNNCells", "cells one after the other at each step, for RNN",
          {object("cells", ValueKind::kObjectList, Category::kLayer, "", "the cells").required()}),
      layer_class("Bidirectional", "a recurrent layer in both directions",
                  {object("layer", ValueKind::kObject, Category::kLayer, "",
                          "the recurrent layer of the first direction")
                       .required(),
                   choice("merge_mode", {"concat", "sum", "mul", "ave"}, "concat",
                          "what becomes of the two outputs; null: NAME and NAME.backward")
                       .nullable(),
                   object("backward_layer", ValueKind::kObject, Category::kLayer, "null",
                          "that of the other direction; when null like `layer`, backwards"),
                   mask_call_arg()}),
      layer_class("TimeDistributed", "a layer for each step alone",
                  {object("layer", ValueKind::kObject, Category::kLayer, "",
                          "the layer, which takes a step without the dimension of steps")
                       .required()}),
      layer_class("MergeSteps",
                  "(batch, steps, ...) to (batch x steps, ...): each step becomes a sample", {}),
      layer_class("SplitSteps", "(batch x steps, ...) to (batch, steps, ...)",
                  {integer("steps", "null", "steps of a sample; null: those of the second input")
                       .nullable()
                       .least(1)
                       .most(kMaxSize)}),
      layer_class("SpectralNormalization",
                  "a layer whose kernel is divided by its largest singular value",
                  {object("layer", ValueKind::kObject, Category::kLayer, "",
                          "the layer, with a `kernel` or `embeddings`")
                       .required(),
                   integer("power_iterations", "1",
                           "steps that find the singular value, in each step of training")
                       .least(1)
                       .most(kMaxSize)}),
  };
}

}  // namespace meshtrain
