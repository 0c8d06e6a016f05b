// Helpers of the catalogue's parts on layers.
#pragma once

#include <string>
#include <vector>

#include "config/catalogue_args.h"

namespace meshtrain {

// What every layer takes besides its own arguments (name, trainable, dtype, ...) is added.
ClassSpec layer_class(std::string name, std::string help, Args args);

Spec initializer_arg(const char* name, const char* default_text);
Spec activation_arg(const char* default_text);
Spec axes_arg(const char* name, const char* default_text, const char* help);  // integer or list
Spec shape_arg(const char* name, const char* help);
Spec required_shape(const char* name, const char* help);
Spec size_arg(const char* name, const char* help);  // required, at least 1
Spec name_arg();                                    // of the layer
Spec inputs_arg();                                  // the layers before it
Spec pad_to_arg();                                  // of a table of ids
Spec noise_shape_arg();                             // of dropout's mask
// One integer for every spatial dimension, or one each; at least `minimum`.
Spec per_dimension(const char* name, const char* default_text, const char* help,
                   double minimum = 1);
Spec data_format_arg();

// Regularizer and constraint of a weight, named as Keras does.
void add_weight_args(Args& args, const char* weight);
// `first`, then the initializers, regularizers and constraints of kernel and bias.
Args with_kernel_args(Args first);
// `first`, then those of low-rank factors of the layer's kernel or table (nn/lora.h).
Args with_lora(Args first);
inline constexpr double kMaxLoraRank = 65536;

// The parts of the layers' list (catalogue_*.cc).
std::vector<ClassSpec> convolution_layer_classes();
std::vector<ClassSpec> pooling_layer_classes();
std::vector<ClassSpec> spatial_layer_classes();
std::vector<ClassSpec> normalization_layer_classes();
std::vector<ClassSpec> augmentation_layer_classes();
std::vector<ClassSpec> attention_layer_classes();
std::vector<ClassSpec> recurrent_layer_classes();
ClassSpec repeat_class();
Spec shared_call_arg();  // of Call: the argument `call` of any layer

}  // namespace meshtrain
