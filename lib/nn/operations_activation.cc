// Activation functions as operations. Source: Keras 3.15 ops/nn.py.
#include "nn/activations.h"
#include "nn/compile.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

ConfigValue argument_of_activation(const Context& c, const std::string& key) {
  ConfigValue out;
  if (key == "approximate") {
    out.data = c.boolean(key);
  } else if (key == "axis") {
    out.data = c.integer(key);
  } else {
    out.data = c.number(key);
  }
  return out;
}

// The activation function `name` of the catalogue.
template <const char* name>
ValueId activation(Context& c) {
  auto object = std::make_shared<ConfigObject>();
  object->class_name = object->spelled = name;
  for (const auto& [key, value] : c.arguments) {
    object->args[key] = argument_of_activation(c, key);
  }
  const ValueId x = c.floating(0);
  const ConfigValue function{.data = object};
  std::string problem;
  if (c.arguments.contains("axis")) {
    c.axis("axis", c.b.shape(x).size());
  }
  activation_shape(function, c.b.shape(x), problem);
  if (!problem.empty()) {
    operation_error(problem);
  }
  return add_activation(c.b, function, x);
}

// A name as a template argument.
#define MESHTRAIN_NAME(text) constexpr char k_##text[] = #text
MESHTRAIN_NAME(relu);
MESHTRAIN_NAME(relu6);
MESHTRAIN_NAME(leaky_relu);
MESHTRAIN_NAME(elu);
MESHTRAIN_NAME(celu);
MESHTRAIN_NAME(selu);
MESHTRAIN_NAME(gelu);
MESHTRAIN_NAME(silu);
MESHTRAIN_NAME(glu);
MESHTRAIN_NAME(tanh);
MESHTRAIN_NAME(sigmoid);
MESHTRAIN_NAME(log_sigmoid);
MESHTRAIN_NAME(hard_sigmoid);
MESHTRAIN_NAME(hard_silu);
MESHTRAIN_NAME(hard_tanh);
MESHTRAIN_NAME(softplus);
MESHTRAIN_NAME(softsign);
MESHTRAIN_NAME(softmax);
MESHTRAIN_NAME(log_softmax);
MESHTRAIN_NAME(sparse_plus);
MESHTRAIN_NAME(sparse_sigmoid);
MESHTRAIN_NAME(squareplus);
MESHTRAIN_NAME(soft_shrink);
MESHTRAIN_NAME(hard_shrink);
MESHTRAIN_NAME(tanh_shrink);
MESHTRAIN_NAME(threshold);
MESHTRAIN_NAME(sparsemax);
#undef MESHTRAIN_NAME

}  // namespace

std::vector<Operation> activation_operations() {
  return {
      {"relu", "Relu", "nn", "x", "", activation<k_relu>},
      {"relu6", "Relu6", "nn", "x", "", activation<k_relu6>},
      {"leaky_relu", "LeakyRelu", "nn", "x", "negative_slope=0.2", activation<k_leaky_relu>},
      {"elu", "Elu", "nn", "x", "alpha=1.0", activation<k_elu>},
      {"celu", "Celu", "nn", "x", "alpha=1.0", activation<k_celu>},
      {"selu", "Selu", "nn", "x", "", activation<k_selu>},
      {"gelu", "Gelu", "nn", "x", "approximate=True", activation<k_gelu>},
      {"silu", "Silu", "nn", "x", "", activation<k_silu>},
      {"glu", "Glu", "nn", "x", "axis=-1", activation<k_glu>},
      {"tanh", "Tanh", "numpy", "x", "", activation<k_tanh>},
      {"sigmoid", "Sigmoid", "nn", "x", "", activation<k_sigmoid>},
      {"log_sigmoid", "LogSigmoid", "nn", "x", "", activation<k_log_sigmoid>},
      {"hard_sigmoid", "HardSigmoid", "nn", "x", "", activation<k_hard_sigmoid>},
      {"hard_silu", "HardSilu", "nn", "x", "", activation<k_hard_silu>},
      {"hard_tanh", "HardTanh", "nn", "x", "", activation<k_hard_tanh>},
      {"softplus", "Softplus", "nn", "x", "", activation<k_softplus>},
      {"softsign", "Softsign", "nn", "x", "", activation<k_softsign>},
      {"sparse_plus", "SparsePlus", "nn", "x", "", activation<k_sparse_plus>},
      {"sparse_sigmoid", "SparseSigmoid", "nn", "x", "", activation<k_sparse_sigmoid>},
      {"squareplus", "Squareplus", "nn", "x", "b=4", activation<k_squareplus>},
      {"soft_shrink", "SoftShrink", "nn", "x", "threshold=0.5", activation<k_soft_shrink>},
      {"hard_shrink", "HardShrink", "nn", "x", "threshold=0.5", activation<k_hard_shrink>},
      {"tanh_shrink", "TanhShrink", "nn", "x", "", activation<k_tanh_shrink>},
      {"threshold", "Threshold", "nn", "x", "threshold, default_value", activation<k_threshold>},
      {"sparsemax", "Sparsemax", "nn", "x", "axis=-1", activation<k_sparsemax>},
      {"softmax", "Softmax", "nn", "x", "axis=-1", activation<k_softmax>},
      {"log_softmax", "LogSoftmax", "nn", "x", "axis=-1", activation<k_log_softmax>},
  };
}

}  // namespace meshtrain
