// Recurrent layers: Keras 3.16 keras/src/layers/rnn.
#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

Args recurrent_args(Args own_activations, Args own_flags) {
  Args args = {size_arg("units", "size of the state")};
  args.insert(args.end(), own_activations.begin(), own_activations.end());
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
  args.push_back(boolean("return_sequences", "false", "the states of all steps, not the last one"));
  args.push_back(boolean("go_backwards", "false", "from the last step to the first"));
  args.push_back(
      boolean("return_state", "false",
              "states as further outputs: `inputs: [x, NAME.state_h]`, of LSTM also NAME.state_c"));
  args.push_back(boolean("stateful", "false", "states that outlast a batch: must be false"));
  args.push_back(boolean("zero_output_for_mask", "false",
                         "zeros at steps that a mask leaves out, not the state before them"));
  args.push_back(boolean("unroll", "false", "accepted; time is one operation anyway"));
  return args;
}

Spec gate_activation() {
  Spec spec = activation_arg("sigmoid");
  spec.name = "recurrent_activation";
  spec.help = "of the gates";
  return spec;
}
Spec use_cudnn() {
  return text("use_cudnn", "auto", "accepted; the program has its own kernels");
}

}  // namespace

std::vector<ClassSpec> recurrent_layer_classes() {
  return {
      layer_class("SimpleRNN", "h = act(x K + h R + b), step by step",
                  recurrent_args({activation_arg("tanh")}, {})),
      layer_class("LSTM", "a state with gates for input, forgetting and output",
                  recurrent_args({activation_arg("tanh"), gate_activation()},
                                 {boolean("unit_forget_bias", "true",
                                          "whether the bias of forgetting begins as one"),
                                  use_cudnn()})),
      layer_class("GRU", "a state with gates for update and reset",
                  recurrent_args(
                      {activation_arg("tanh"), gate_activation()},
                      {boolean("reset_after", "true", "whether the reset gate follows the product"),
                       use_cudnn()})),
      layer_class("Bidirectional", "a recurrent layer in both directions",
                  {object("layer", ValueKind::kObject, Category::kLayer, "",
                          "the SimpleRNN, LSTM or GRU of the first direction")
                       .required(),
                   choice("merge_mode", {"concat", "sum", "mul", "ave"}, "concat",
                          "what becomes of the two outputs; null: NAME and NAME.backward")
                       .nullable(),
                   object("backward_layer", ValueKind::kObject, Category::kLayer, "null",
                          "that of the other direction; when null like `layer`, backwards")}),
      layer_class("TimeDistributed", "a layer for each step alone",
                  {object("layer", ValueKind::kObject, Category::kLayer, "",
                          "the layer, which takes a step without the dimension of steps")
                       .required()}),
  };
}

}  // namespace meshtrain
