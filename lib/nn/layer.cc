#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/spec.h"
#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/parts.h"

namespace meshtrain {
namespace {

const std::map<std::string_view, LayerEntry>& layer_table() {
  static const std::map<std::string_view, LayerEntry> kTable = [] {
    std::map<std::string_view, LayerEntry> table;
    for (const auto& family : {core_layers,
                               einsum_dense_layers,
                               embedding_layers,
                               shape_layers,
                               activation_layers,
                               preprocessing_layers,
                               merge_layers,
                               dot_layers,
                               attention_layers,
                               score_attention_layers,
                               mixture_layers,
                               position_layers,
                               merged_steps_layers,
                               lambda_layers,
                               conv_layers,
                               conv_transpose_layers,
                               pooling_layers,
                               padding_layers,
                               resizing_layers,
                               batch_normalization_layers,
                               normalization_layers,
                               spectral_layers,
                               spectrogram_layers,
                               noise_layers,
                               augmentation_layers,
                               color_layers,
                               filter_layers,
                               warp_layers,
                               equalization_layers,
                               rand_augment_layers,
                               transformer_layers,
                               recurrent_layers,
                               wrapper_layers,
                               application_layers,
                               hub_layers}) {
      for (const LayerEntry& entry : family()) {
        MESHTRAIN_CHECK(entry.is_part || find_class(Category::kLayer, entry.class_name) != nullptr,
                        "{} is not declared", entry.class_name);
        table.emplace(entry.class_name, entry);
      }
    }
    return table;
  }();
  return kTable;
}

// The layer's argument "<weight>_<kind>", or null. Keras names those of a "depthwise_kernel", or of
// the one kernel of a depthwise convolution, "depthwise_<kind>", and so on.
const ConfigValue& argument_of_weight(const ConfigObject& layer, std::string weight,
                                      const char* kind) {
  constexpr std::string_view kSuffix = "_kernel";
  weight = weight.substr(weight.rfind('/') + 1);  // "query/kernel": of a part
  const std::string own = weight + "_" + kind;
  if (layer.args.contains(own)) {
    return layer.arg(own);
  }
  if (weight == "kernel") {
    weight = "depthwise";
  } else if (weight.ends_with(kSuffix)) {
    weight.resize(weight.size() - kSuffix.size());
  }
  return value_or_null(layer, weight + "_" + kind);
}

std::shared_ptr<const ConfigObject> object_of_weight(const ConfigObject* layer,
                                                     std::string_view weight, const char* kind) {
  if (layer == nullptr) {
    return nullptr;
  }
  const ConfigValue& value = argument_of_weight(*layer, std::string(weight), kind);
  return value.is_null() ? nullptr : std::get<std::shared_ptr<ConfigObject>>(value.data);
}

[[noreturn]] void refuse(const SourceLoc& loc, std::string message, std::string_view help) {
  throw ConfigError("E120", loc, std::move(message)).help(help);
}

// The policy of one layer: its own `dtype` argument, which the reader has checked, else the
// config's.
DTypePolicy policy_of(const ConfigObject& object, const DTypePolicy& policy) {
  return object.has("dtype") ? dtype_policy(object.string("dtype")) : policy;
}

}  // namespace

std::string_view Layer::acting_class() const {
  return acting() == nullptr ? std::string_view(class_name) : acting()->class_name;
}

DType Layer::output_dtype(std::span<const DType>) const {
  return dtype;
}

int64_t Layer::rows_per_sample(std::span<const int64_t> inputs) const {
  const bool are_same =
      std::adjacent_find(inputs.begin(), inputs.end(), std::not_equal_to<>()) == inputs.end();
  return are_same ? inputs[0] : 0;
}

int Layer::add_weight(std::string_view weight_name, Shape shape, DType weight_dtype,
                      Initializer initializer, bool weight_trainable) {
  std::string path = path_prefix_ + std::string(weight_name);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].path == path) {
      if (weights[i].shape != shape) {
        refuse(loc,
               fmt::format("layer `{}` is used again with another input: `{}` would need shape {}, "
                           "but has {}",
                           name, path, shape_string(shape), shape_string(weights[i].shape)),
               "give this input a layer of its own");
      }
      return static_cast<int>(i);
    }
  }
  if (is_too_large(shape)) {
    refuse(loc,
           fmt::format("layer `{}` ({}) needs a weight `{}` of {}, more than 2^48 numbers", name,
                       class_name, path, shape_string(shape)),
           "make it smaller");
  }
  weights.push_back({std::move(path), std::move(shape), weight_dtype, weight_trainable && trainable,
                     std::move(initializer), object_of_weight(config(), weight_name, "regularizer"),
                     object_of_weight(config(), weight_name, "constraint")});
  const bool has_factors = weight_name == "kernel" || weight_name == "embeddings";
  if (has_factors && config() != nullptr && integer_or(*config(), "lora_rank", 0) > 0) {
    Lora& lora = weights.back().lora;
    lora.rank = config()->integer("lora_rank");
    lora.alpha = number_or(*config(), "lora_alpha", static_cast<double>(lora.rank));
  }
  weights.back().lora.inputs = std::max<size_t>(weights.back().shape.size(), 1) - 1;
  return static_cast<int>(weights.size()) - 1;
}

std::unique_ptr<Layer> make_layer(const LayerConfig& config, const DTypePolicy& policy) {
  const ConfigObject& object = config.object;
  const auto found = layer_table().find(object.class_name);
  MESHTRAIN_CHECK(found != layer_table().end(), "no layer {}", object.class_name);
  std::unique_ptr<Layer> layer = found->second.make(object);
  layer->name = config.name.value;
  layer->class_name = object.class_name;
  layer->loc = object.loc;
  const DTypePolicy own = policy_of(object, policy);
  layer->dtype = own.compute;
  layer->variable_dtype = own.variable;
  layer->trainable = boolean_or(object, "trainable", true);
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

int ConfiguredLayer::add_weight(std::string_view weight_name, Shape shape, bool weight_trainable) {
  const ConfigValue& initializer =
      argument_of_weight(config_, std::string(weight_name), "initializer");
  return add_weight(weight_name, std::move(shape), variable_dtype, make_initializer(initializer),
                    weight_trainable);
}

void ConfiguredLayer::pad_weight(int weight, int dim) {
  weights[static_cast<size_t>(weight)].pad_dim = dim;
  weights[static_cast<size_t>(weight)].pad_to = integer_or(config_, "pad_to", 1);
}

int64_t ConfiguredLayer::seed(const CallContext& context) const {
  return integer_or(config_, "seed", context.seed);
}

Shape FloatLayer::build(std::span<const Shape> inputs, Diagnostics& diagnostics) {
  return takes_one(inputs, diagnostics) ? inputs[0] : failed_shape();
}

Initializer filled_with(double value) {
  return [value](const Shape& shape, DType dtype, uint64_t, std::string_view) {
    HostTensor out(dtype, shape);
    for (int64_t i = 0; i < out.size(); ++i) {
      out.set(i, value);
    }
    return out;
  };
}

ValueId to_compute(CallContext& context, ValueId x) {
  return context.builder.cast(x, context.compute_dtype);
}

ValueId to_float32(CallContext& context, ValueId x) {
  return context.builder.cast(x, at_least_float32(context.compute_dtype));
}

Shape AxesLayer::build(std::span<const Shape> inputs, Diagnostics& diagnostics) {
  const Shape output = FloatLayer::build(inputs, diagnostics);
  if (is_failed(output)) {
    return output;
  }
  for (const int64_t given : integers_of(value_or_null(config_, "axis"))) {
    const auto axis = axis_in(given, output.size());
    if (!axis || *axis == 0) {
      shape_error(diagnostics, inputs,
                  fmt::format("axis {} is not a dimension after the batch", given))
          .help(fmt::format("`axis` counts the batch as 0: write 1 to {}, or -1 for the last",
                            output.size() - 1));
      return failed_shape();
    }
    if (needs_sizes() && output[static_cast<size_t>(*axis)] == kUnknownDim) {
      shape_error(diagnostics, inputs, fmt::format("the size of axis {} must be known", given))
          .help("write it in the Input's `shape`");
      return failed_shape();
    }
  }
  const std::vector<int64_t> all = axes(output.size());
  if (std::adjacent_find(all.begin(), all.end()) != all.end()) {
    argument_error(diagnostics, "axis", "names a dimension twice").help("name each only once");
    return failed_shape();
  }
  return output;
}

std::vector<int64_t> AxesLayer::axes(size_t rank) const {
  std::vector<int64_t> out = integers_of(value_or_null(config_, "axis"));
  for (int64_t& axis : out) {
    axis = axis_in(axis, rank).value();
  }
  std::sort(out.begin(), out.end());
  return out;
}

Shape AxesLayer::sizes(const Shape& shape) const {
  Shape out;
  for (const int64_t axis : axes(shape.size())) {
    out.push_back(shape[static_cast<size_t>(axis)]);
  }
  return out;
}

Shape AxesLayer::spread_sizes(const Shape& shape) const {
  Shape out(shape.size(), 1);
  for (const int64_t axis : axes(shape.size())) {
    out[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
  }
  return out;
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
