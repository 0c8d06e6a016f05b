#include "config/catalogue_layer_args.h"

#include <algorithm>

#include "config/precision.h"

namespace meshtrain {

// Of windows, strides and paddings: a size in int64 stays one when multiplied by it.
constexpr double kMaxWindow = 65536;

Spec initializer_arg(const char* name, const char* default_text) {
  return object(name, ValueKind::kObject, Category::kInitializer, default_text,
                "how the weight gets its first values");
}

Spec activation_arg(const char* default_text) {
  return make_spec("activation", ValueKind::kActivation, default_text,
                   "function applied to the output; null = linear");
}

Spec axes_arg(const char* name, const char* default_text, const char* help) {
  return make_spec(name, ValueKind::kIntOrList, default_text, help);
}

Spec shape_arg(const char* name, const char* help) {
  return make_spec(name, ValueKind::kShape, "null", help);
}

Spec required_shape(const char* name, const char* help) {
  return make_spec(name, ValueKind::kShape, "", help).required();
}

Spec size_arg(const char* name, const char* help) {
  return integer(name, "", help).required().least(1).most(kMaxSize);
}

Spec pad_to_arg() {
  return make_spec("pad_to", ValueKind::kInt, "null",
                   "in memory, rows are a multiple of it, so that a mesh divides them")
      .least(1);
}

Spec noise_shape_arg() {
  return shape_arg("noise_shape", "shape of the mask; null = the input's size, 1 = shared")
      .unknown_ok();
}

Spec per_dimension(const char* name, const char* default_text, const char* help, double minimum) {
  Spec spec = make_spec(name, ValueKind::kIntOrList, default_text, help);
  spec.least(minimum).most(kMaxWindow);
  return spec.default_text.empty() ? spec.required() : spec;
}

Spec data_format_arg() {
  return choice("data_format", {"channels_last", "channels_first"}, "null",
                "where the channels are; null = channels_last");
}

void add_weight_args(Args& args, const char* weight) {
  args.push_back(object(std::string(weight) + "_regularizer", ValueKind::kObject,
                        Category::kRegularizer, "null", "penalty on the weight"));
  args.push_back(object(std::string(weight) + "_constraint", ValueKind::kObject,
                        Category::kConstraint, "null", "projection of the weight after a step"));
}

Args with_kernel_args(Args first) {
  first.push_back(initializer_arg("kernel_initializer", "glorot_uniform"));
  first.push_back(initializer_arg("bias_initializer", "zeros"));
  add_weight_args(first, "kernel");
  add_weight_args(first, "bias");
  return first;
}

Args with_lora(Args first) {
  first.push_back(integer("lora_rank", "null",
                          "rank of low-rank factors, which train in place of the kernel or table")
                      .least(1)
                      .most(kMaxLoraRank));
  first.push_back(number("lora_alpha", "null",
                         "their product is multiplied by lora_alpha / lora_rank; null: by 1")
                      .above(0));
  return first;
}

Spec name_arg() {
  return text("name", "null", "name in variable paths; Keras' automatic name when null");
}

Spec inputs_arg() {
  return make_spec("inputs", ValueKind::kNames, "null",
                   "names of the earlier layers it takes; null = the entry before it");
}

ClassSpec layer_class(std::string name, std::string help, Args args) {
  const bool is_input = name == "Input";
  for (const Spec& common :
       {name_arg(), boolean("trainable", "true", "whether fit changes its weights"),
        choice("dtype", dtype_policy_names(), "null", "dtype policy of this layer"),
        object("activity_regularizer", ValueKind::kObject, Category::kRegularizer, "null",
               "penalty on the output"),
        inputs_arg()}) {
    const bool has = std::any_of(args.begin(), args.end(),
                                 [&](const Spec& own) { return own.name == common.name; });
    const bool is_penalty = common.name == "activity_regularizer";
    const bool is_missing =
        (is_input && (common.name == "inputs" || common.name == "trainable" || is_penalty)) ||
        (is_penalty && name == "ActivityRegularization");
    if (!has && !is_missing) {
      args.push_back(common);
    }
  }
  return make_class(std::move(name), std::move(help), std::move(args));
}

}  // namespace meshtrain
