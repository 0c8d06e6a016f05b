#include <map>

#include "base/text.h"
#include "config/spec.h"
#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

const std::map<std::string_view, LayerEntry>& layer_table() {
  static const std::map<std::string_view, LayerEntry> kTable = [] {
    std::map<std::string_view, LayerEntry> table;
    for (const auto& family :
         {core_layers, einsum_dense_layers, embedding_layers, shape_layers, activation_layers,
          preprocessing_layers, merge_layers, dot_layers, conv_layers, conv_transpose_layers,
          pooling_layers, padding_layers, resizing_layers, batch_normalization_layers,
          normalization_layers, noise_layers, augmentation_layers, warp_layers}) {
      for (const LayerEntry& entry : family()) {
        table.emplace(entry.class_name, entry);
      }
    }
    return table;
  }();
  return kTable;
}

// Arguments of Keras that change what is computed and that no layer here implements.
constexpr std::string_view kUnsupported[] = {"lora_rank", "quantization_config"};

// The layer's argument "<weight>_<kind>". Keras names those of a "depthwise_kernel", or of the one
// kernel of a depthwise convolution, "depthwise_<kind>", and so on.
std::shared_ptr<const ConfigObject> argument_of_weight(const ConfigObject* layer,
                                                       std::string weight, const char* kind) {
  if (layer == nullptr) {
    return nullptr;
  }
  constexpr std::string_view kSuffix = "_kernel";
  const std::string own = weight + "_" + kind;
  if (weight == "kernel" && layer->args.find(own) == layer->args.end()) {
    weight = "depthwise";
  } else if (weight.ends_with(kSuffix)) {
    weight.resize(weight.size() - kSuffix.size());
  }
  const std::string shorter = weight + "_" + kind;
  const std::string& name = layer->args.find(own) == layer->args.end() ? shorter : own;
  return layer->has(name) ? std::get<std::shared_ptr<ConfigObject>>(layer->arg(name).data)
                          : nullptr;
}

void refuse_unsupported(const ConfigObject& object, Diagnostics& diagnostics) {
  for (const std::string_view name : kUnsupported) {
    if (object.has(name)) {
      diagnostics
          .error("E124", object.loc_of(name),
                 fmt::format("`{}` of {} is not supported", name, object.class_name))
          .help("remove it; it would change the result if it were ignored");
    }
  }
}

// The policy of one layer: its own `dtype` argument, else the config's.
DType layer_dtype(const ConfigObject& object, DType policy, Diagnostics& diagnostics) {
  if (!object.has("dtype") || object.class_name == "Input") {
    return policy;
  }
  const std::string& name = object.string("dtype");
  const std::optional<DType> dtype = parse_dtype(name);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    diagnostics
        .error("E113", object.loc_of("dtype"),
               fmt::format("{} cannot compute in `{}`", object.class_name, name))
        .help("write float32 or float64");
    return policy;
  }
  return *dtype;
}

}  // namespace

DType Layer::output_dtype(std::span<const DType>) const {
  return dtype;
}

int Layer::add_weight(std::string_view weight_name, Shape shape, DType weight_dtype,
                      Initializer initializer, bool weight_trainable) {
  std::string path = path_prefix_ + std::string(weight_name);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].path == path) {
      if (weights[i].shape != shape) {
        throw ConfigError(
            "E120", loc,
            fmt::format("layer `{}` is used again with another input: `{}` would need "
                        "shape {}, but has {}",
                        name, path, shape_string(shape), shape_string(weights[i].shape)));
      }
      return static_cast<int>(i);
    }
  }
  if (is_too_large(shape)) {
    throw ConfigError(
        "E120", loc,
        fmt::format("layer `{}` ({}) needs a weight `{}` of {}, more than 2^48 numbers", name,
                    class_name, path, shape_string(shape)));
  }
  weights.push_back({std::move(path), std::move(shape), weight_dtype, weight_trainable && trainable,
                     std::move(initializer),
                     argument_of_weight(config(), std::string(weight_name), "regularizer"),
                     argument_of_weight(config(), std::string(weight_name), "constraint")});
  return static_cast<int>(weights.size()) - 1;
}

std::unique_ptr<Layer> make_layer(const LayerConfig& config, DType dtype,
                                  Diagnostics& diagnostics) {
  const ConfigObject& object = config.object;
  const auto found = layer_table().find(object.class_name);
  if (found == layer_table().end()) {
    std::vector<std::string> names;
    for (const auto& [class_name, entry] : layer_table()) {
      names.emplace_back(class_name);
    }
    Diagnostics unknown;
    Diagnostic& problem =
        unknown.error("E122", object.loc, fmt::format("there is no layer `{}`", object.class_name));
    if (const auto nearest = nearest_name(object.class_name, names)) {
      problem.with_label(fmt::format("did you mean `{}`?", *nearest));
    }
    throw ConfigError(std::move(unknown));
  }
  refuse_unsupported(object, diagnostics);
  std::unique_ptr<Layer> layer = found->second.make(object);
  layer->name = config.name.value;
  layer->class_name = object.class_name;
  layer->loc = object.loc;
  layer->dtype = layer_dtype(object, dtype, diagnostics);
  layer->trainable = boolean_or(&object, "trainable", true);
  layer->path_prefix_ = layer->name + "/";
  return layer;
}

Diagnostic& ConfiguredLayer::shape_error(Diagnostics& diagnostics, std::span<const Shape> inputs,
                                         std::string_view what) const {
  std::vector<std::string> shapes;
  for (const Shape& shape : inputs) {
    shapes.push_back(shape_string(shape));
  }
  return diagnostics.error("E120", loc,
                           fmt::format("layer `{}` ({}) gets {}: {}", name, class_name,
                                       shapes.empty() ? "no input" : join(shapes, " and "), what));
}

Diagnostic& ConfiguredLayer::argument_error(Diagnostics& diagnostics, std::string_view argument,
                                            std::string_view what) const {
  return diagnostics.error(
      "E113", config_.loc_of(argument),
      fmt::format("`{}` of layer `{}` ({}) {}", argument, name, class_name, what));
}

bool ConfiguredLayer::takes_one(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
  if (inputs.size() == 1) {
    return true;
  }
  shape_error(diagnostics, inputs, "it takes one input")
      .help("name one layer in `inputs`, or merge them first (Add, Concatenate)");
  return false;
}

Shape ConfiguredLayer::activated_shape(std::span<const Shape> inputs, const Shape& shape,
                                       Diagnostics& diagnostics) const {
  std::string problem;
  Shape output = activation_shape(value_or_null(config_, "activation"), shape, problem);
  if (problem.empty()) {
    return output;
  }
  shape_error(diagnostics, inputs, problem);
  return failed_shape();
}

Shape FloatLayer::build(std::span<const Shape> inputs, Diagnostics& diagnostics) {
  return takes_one(inputs, diagnostics) ? inputs[0] : failed_shape();
}

ValueId to_compute(CallContext& context, ValueId x) {
  return context.builder.cast(x, context.compute_dtype);
}

std::optional<int64_t> axis_in(int64_t axis, size_t rank) {
  const auto size = static_cast<int64_t>(rank);
  if (axis < -size || axis >= size) {
    return std::nullopt;
  }
  return axis < 0 ? axis + size : axis;
}

bool is_too_large(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size > 0 && product > kMaxElements / size) {
      return true;
    }
    product *= std::max<int64_t>(size, 1);
  }
  return false;
}

int64_t elements_per_sample(const Shape& shape) {
  int64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) {
    if (shape[i] == kUnknownDim) {
      return kUnknownDim;
    }
    product *= shape[i];
  }
  return product;
}

}  // namespace meshtrain
