// Layers that only move elements: Flatten, Reshape, Permute, RepeatVector. They keep integer
// dtypes. Source: Keras 3 layers/reshaping.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

class ShapeLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  DType output_dtype(std::span<const DType> inputs) const override {
    return is_floating(inputs[0]) ? dtype : inputs[0];
  }
};

// (B, ...) -> (B, product); one number per sample becomes (B, 1).
class Flatten : public ShapeLayer {
 public:
  using ShapeLayer::ShapeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    return {inputs[0][0], elements_per_sample(inputs[0])};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = inputs[0];
    const size_t rank = b.shape(x).size();
    if (string_or(config_, "data_format", "channels_last") == "channels_first" && rank > 2) {
      x = move_axis(b, x, 1, rank - 1);
    }
    return b.reshape(x, {b.shape(x)[0], elements_per_sample(b.shape(x))});
  }
};

// To `target_shape` (without the batch), one of whose sizes may be -1.
class Reshape : public ShapeLayer {
 public:
  using ShapeLayer::ShapeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const std::vector<int64_t> target = config_.arg("target_shape").integers();
    if (std::count(target.begin(), target.end(), -1) > 1) {
      argument_error(diagnostics, "target_shape", "has more than one -1")
          .help("leave at most one size to be worked out");
      return failed_shape();
    }
    const int64_t size = elements_per_sample(inputs[0]);
    if (size == kUnknownDim) {
      Shape output = target;
      output.insert(output.begin(), inputs[0][0]);
      return output;
    }
    if (!fits(size)) {
      shape_error(diagnostics, inputs,
                  fmt::format("{} numbers per sample cannot take the shape [{}]", size,
                              fmt::join(target, ", ")))
          .help("the product of `target_shape` must be the number of elements per sample");
      return failed_shape();
    }
    return output_shape(inputs[0]);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    return b.reshape(inputs[0], output_shape(b.shape(inputs[0])));
  }

 private:
  // Product of the given sizes.
  int64_t known() const {
    int64_t product = 1;
    for (const int64_t size : config_.arg("target_shape").integers()) {
      product *= size == -1 ? 1 : size;
    }
    return product;
  }

  bool fits(int64_t size) const {
    const std::vector<int64_t> target = config_.arg("target_shape").integers();
    const bool has_free = std::find(target.begin(), target.end(), -1) != target.end();
    return has_free ? known() > 0 && size % known() == 0 : known() == size;
  }

  Shape output_shape(const Shape& input) const {
    Shape output = {input[0]};
    for (const int64_t size : config_.arg("target_shape").integers()) {
      output.push_back(size == -1 ? elements_per_sample(input) / known() : size);
    }
    return output;
  }
};

// `dims` counts from 1 and leaves out the batch.
class Permute : public ShapeLayer {
 public:
  using ShapeLayer::ShapeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const std::vector<int64_t> dims = config_.arg("dims").integers();
    std::vector<int64_t> sorted = dims;
    std::sort(sorted.begin(), sorted.end());
    bool is_permutation = dims.size() + 1 == inputs[0].size();
    for (size_t i = 0; i < sorted.size(); ++i) {
      is_permutation = is_permutation && sorted[i] == static_cast<int64_t>(i) + 1;
    }
    if (!is_permutation) {
      shape_error(diagnostics, inputs,
                  fmt::format("`dims` [{}] is no order of its dimensions", fmt::join(dims, ", ")))
          .help(fmt::format("write each of 1 to {} once", inputs[0].size() - 1));
      return failed_shape();
    }
    Shape output = {inputs[0][0]};
    for (const int64_t dim : dims) {
      output.push_back(inputs[0][dim]);
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    std::vector<int64_t> permutation = config_.arg("dims").integers();
    permutation.insert(permutation.begin(), 0);
    return context.builder.transpose(inputs[0], permutation);
  }
};

// (B, F) -> (B, n, F).
class RepeatVector : public ShapeLayer {
 public:
  using ShapeLayer::ShapeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    if (inputs[0].size() != 2) {
      shape_error(diagnostics, inputs, "it takes (batch, features)").help("add Flatten before it");
      return failed_shape();
    }
    return {inputs[0][0], config_.integer("n"), inputs[0][1]};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const Shape shape = b.shape(inputs[0]);
    return b.broadcast_to(b.expand_dims(inputs[0], 1), {shape[0], config_.integer("n"), shape[1]});
  }
};

}  // namespace

std::vector<LayerEntry> shape_layers() {
  return {{"Flatten", make_as<Flatten>},
          {"Reshape", make_as<Reshape>},
          {"Permute", make_as<Permute>},
          {"RepeatVector", make_as<RepeatVector>}};
}

}  // namespace meshtrain
