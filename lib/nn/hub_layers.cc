// Layers that models of Keras Hub have beside its blocks: ViTPatchingAndEmbedding, MaskedLMHead.
// Source: Keras Hub 0.32 models/vit/vit_layers.py, layers/modeling/masked_lm_head.py.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/parts.h"

namespace meshtrain {
namespace {

// An initializer of normal numbers, as an argument.
ConfigValue normal_initializer(double stddev) {
  ConfigObject object = default_object(Category::kInitializer, "RandomNormal");
  object.args["stddev"].data = stddev;
  ConfigValue out;
  out.data = std::make_shared<ConfigObject>(std::move(object));
  return out;
}

// Images (batch, height, width, channels) -> (batch, patches, hidden_dim), after a row that trains,
// plus rows of a table of positions. A. Dosovitskiy et al., arXiv:2010.11929, section 3.1.
class ViTPatchingAndEmbedding final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !check_sizes(inputs, diagnostics)) {
      return failed_shape();
    }
    const int64_t width = config_.integer("hidden_dim");
    if (has_token()) {
      token_ = Layer::add_weight("class_token", {1, 1, width}, variable_dtype,
                                 make_initializer(normal_initializer(0.05)));
    }
    ConfigObject object = default_object(Category::kLayer, "Conv2D");
    object.loc = loc;
    object.args["trainable"].data = trainable;
    object.args["filters"].data = width;
    object.args["kernel_size"] = config_.arg("patch_size");
    object.args["strides"] = config_.arg("patch_size");
    object.args["data_format"] = config_.arg("data_format");
    object.args["use_bias"] = config_.arg("use_patch_bias");
    if (is_failed(build_part(patches_, object, inputs, {}, diagnostics))) {
      return failed_shape();
    }
    table_ = Layer::add_weight("position_embedding/embeddings", {rows(), width}, variable_dtype,
                               make_initializer(normal_initializer(0.02)));
    return {inputs[0][0], rows(), width};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = call_part(context, patches_, inputs[0]);
    if (is_channels_first()) {
      x = b.transpose(x, {0, 2, 3, 1});
    }
    const int64_t batch = b.shape(x)[0], width = b.shape(x)[3];
    x = b.reshape(x, {batch, rows() - (has_token() ? 1 : 0), width});
    if (has_token()) {
      const ValueId token = to_compute(context, context.weight(token_));
      x = b.concat({b.broadcast_to(token, {batch, 1, width}), x}, 1);
    }
    return b.add(x, to_compute(context, context.weight(table_)));
  }

 private:
  bool has_token() const { return config_.boolean("use_class_token"); }
  bool is_channels_first() const {
    return config_.has("data_format") && config_.string("data_format") == "channels_first";
  }
  int64_t rows() const {
    const std::vector<int64_t> size = config_.arg("image_size").integers();
    const std::vector<int64_t> patch = config_.arg("patch_size").integers();
    return (size[0] / patch[0]) * (size[1] / patch[1]) + (has_token() ? 1 : 0);
  }

  bool check_sizes(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    const std::vector<int64_t> size = config_.arg("image_size").integers();
    const std::vector<int64_t> patch = config_.arg("patch_size").integers();
    for (const char* argument : {"image_size", "patch_size"}) {
      const std::vector<int64_t> sizes = config_.arg(argument).integers();
      if (sizes.size() != 2 || std::min(sizes[0], sizes[1]) < 1) {
        argument_error(diagnostics, argument, "is no height and width")
            .help("write two whole numbers of at least 1, such as [16, 16]");
        return false;
      }
    }
    Shape wanted = {kUnknownDim, size[0], size[1], config_.integer("num_channels")};
    if (is_channels_first()) {
      std::rotate(wanted.begin() + 1, wanted.end() - 1, wanted.end());
    }
    if (inputs[0] != wanted) {
      shape_error(diagnostics, inputs, fmt::format("it takes images of {}", shape_string(wanted)))
          .help("set `image_size` and `num_channels` to those of the images");
      return false;
    }
    if (patch[0] > size[0] || patch[1] > size[1]) {
      argument_error(diagnostics, "patch_size", "is larger than the image")
          .help(fmt::format("write at most {} x {}", size[0], size[1]));
      return false;
    }
    return true;
  }

  Part patches_{"patch_embedding"};
  int token_ = kNone, table_ = kNone;
};

// Hidden states (batch, steps, features) at positions (batch, masks) -> (batch, masks, vocabulary).
class MaskedLMHead final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!check_inputs(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape &x = inputs[place("inputs")], &positions = inputs[place("mask_positions")];
    const Shape gathered = {x[0], positions[1], x[2]};
    const int64_t size = vocabulary_size(x[2], diagnostics);
    if (size == 0) {
      return failed_shape();
    }
    if (tied == nullptr) {
      kernel_ = Layer::add_weight("output_kernel", {x[2], size}, variable_dtype,
                                  make_initializer(config_.arg("kernel_initializer")));
    }
    bias_ = Layer::add_weight("output_bias", {size}, variable_dtype,
                              make_initializer(config_.arg("bias_initializer")));
    ConfigObject object = part_object("Dense");
    object.args["units"].data = x[2];
    object.args["activation"] = config_.arg("intermediate_activation");
    object.args["kernel_initializer"] = config_.arg("kernel_initializer");
    object.args["bias_initializer"] = config_.arg("bias_initializer");
    const Shape inner = build_part(dense_, object, {&gathered, 1}, {}, diagnostics);
    if (is_failed(inner)) {
      return failed_shape();
    }
    if (inner != gathered) {
      argument_error(diagnostics, "intermediate_activation", "changes the number of features")
          .help("write one that works element by element, such as gelu");
      return failed_shape();
    }
    object = part_object("LayerNormalization");
    object.args["epsilon"] = config_.arg("layer_norm_epsilon");
    build_part(norm_, object, {&gathered, 1}, {}, diagnostics);
    return activated_shape(inputs, {x[0], positions[1], size}, diagnostics);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = inputs[place("inputs")];
    // A product with rows of one 1 picks the steps: it has a gradient and a rule for each
    // dimension.
    const ValueId ids = b.cast(inputs[place("mask_positions")], DType::kInt32);
    const ValueId chosen = b.one_hot(ids, b.shape(x)[1], b.dtype(x));
    ValueId y = b.einsum("bmt,bte->bme", {chosen, x});
    y = call_part(context, norm_, call_part(context, dense_, y));
    y = to_compute(context, y);
    y = tied == nullptr
            ? b.einsum("bme,ev->bmv", {y, to_compute(context, context.weight(kernel_))})
            : to_compute(context, reversed_embedding(context, *tied, context.tied_weight, y));
    y = b.add(y, to_compute(context, context.weight(bias_)));
    return add_activation(b, config_.arg("activation"), y);
  }

 private:
  // Which input it is: by a map, else in this order.
  size_t place(std::string_view name) const {
    if (use.roles.empty()) {
      return name == "inputs" ? 0 : 1;
    }
    return static_cast<size_t>(std::find(use.roles.begin(), use.roles.end(), name) -
                               use.roles.begin());
  }

  bool check_inputs(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    if (inputs.size() != 2 || place("inputs") > 1 || place("mask_positions") > 1) {
      shape_error(diagnostics, inputs, "it takes `inputs` and `mask_positions`")
          .help("write `inputs: [x, positions]`, or a map with these names");
      return false;
    }
    const Shape &x = inputs[place("inputs")], &positions = inputs[place("mask_positions")];
    const bool is_sequence = x.size() == 3 && x[1] != kUnknownDim && x[2] != kUnknownDim;
    if (!is_sequence || positions.size() != 2 || positions[1] == kUnknownDim) {
      shape_error(diagnostics, inputs,
                  "it needs (batch, steps, features) and positions (batch, masks) of known sizes")
          .help("give the Input of the positions the shape [masks], dtype int32");
      return false;
    }
    return true;
  }

  // The argument, or the rows of the table; 0 after an error.
  int64_t vocabulary_size(int64_t features, Diagnostics& diagnostics) const {
    const int64_t given = integer_or(config_, "vocabulary_size", 0);
    if (tied == nullptr) {
      if (given == 0) {
        diagnostics
            .error("E112", loc,
                   fmt::format("layer `{}` (MaskedLMHead) needs `vocabulary_size` or "
                               "`token_embedding`",
                               name))
            .help("`token_embedding` names the layer whose table of tokens it shares");
      }
      return given;
    }
    const int64_t rows = tied->config()->integer("input_dim");
    const int64_t columns = tied->config()->integer("output_dim");
    if (given != 0 && given != rows) {
      argument_error(diagnostics, "vocabulary_size",
                     fmt::format("is {}, but `{}` has {} rows", given, tied->name, rows))
          .help("leave `vocabulary_size` out");
      return 0;
    }
    if (columns != features) {
      argument_error(diagnostics, "token_embedding",
                     fmt::format("has {} features, and the input {}", columns, features))
          .help("leave `token_embedding` out, and write `vocabulary_size`");
      return 0;
    }
    return rows;
  }

  ConfigObject part_object(std::string_view class_name) const {
    ConfigObject object = default_object(Category::kLayer, class_name);
    object.loc = loc;
    object.args["trainable"].data = trainable;
    return object;
  }

  Part dense_{"intermediate_dense"}, norm_{"intermediate_layer_norm"};
  int kernel_ = kNone, bias_ = kNone;
};

}  // namespace

std::vector<LayerEntry> hub_layers() {
  return {{"ViTPatchingAndEmbedding", make_as<ViTPatchingAndEmbedding>},
          {"MaskedLMHead", make_as<MaskedLMHead>}};
}

}  // namespace meshtrain
