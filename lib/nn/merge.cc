// Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate. Source: Keras 3 layers/merging.
#include <algorithm>
#include <map>

#include "nn/arguments.h"
#include "nn/layers.h"
#include "nn/masks.h"

namespace meshtrain {
namespace {

std::vector<ValueId> in_one_dtype(CallContext& context, std::span<const ValueId> inputs,
                                  DType dtype) {
  std::vector<ValueId> out;
  for (const ValueId x : inputs) {
    out.push_back(context.builder.cast(x, dtype));
  }
  return out;
}

DType merged_dtype(std::span<const DType> inputs, DType policy) {
  const bool all_same =
      std::all_of(inputs.begin(), inputs.end(), [&](DType dtype) { return dtype == inputs[0]; });
  const bool any_float = std::any_of(inputs.begin(), inputs.end(), is_floating);
  return any_float ? policy : all_same ? inputs[0] : DType::kInt32;
}

std::vector<DType> dtypes_of(Builder& b, std::span<const ValueId> values) {
  std::vector<DType> out;
  for (const ValueId v : values) {
    out.push_back(b.dtype(v));
  }
  return out;
}

// Element by element, broadcasting; inputs of lower rank get dimensions of size 1 after the batch.
class ElementwiseMerge : public ConfiguredLayer {
 public:
  explicit ElementwiseMerge(const ConfigObject& config)
      : ConfiguredLayer(config), op_(op_of(config.class_name)) {}

  DType output_dtype(std::span<const DType> inputs) const override {
    return op_ == "average" ? dtype : merged_dtype(inputs, dtype);
  }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (inputs.size() < 2 || (op_ == "sub" && inputs.size() != 2)) {
      shape_error(diagnostics, inputs,
                  op_ == "sub" ? "it takes exactly two inputs" : "it takes two inputs or more")
          .help("name them: `inputs: [a, b]`");
      return failed_shape();
    }
    const size_t rank = max_rank(inputs);
    Shape output = expanded(inputs[0], rank);
    for (const Shape& input : inputs.subspan(1)) {
      const Shape other = expanded(input, rank);
      for (size_t i = 0; i < rank; ++i) {
        if (output[i] == 1 || (output[i] == kUnknownDim && other[i] != 1)) {
          output[i] = other[i];
        } else if (other[i] != 1 && other[i] != kUnknownDim && other[i] != output[i]) {
          shape_error(diagnostics, inputs, "these do not broadcast")
              .help("sizes must be equal or 1 in every dimension");
          return failed_shape();
        }
      }
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    std::vector<Shape> shapes;
    for (const ValueId x : inputs) {
      shapes.push_back(b.shape(x));
    }
    const size_t rank = max_rank(shapes);
    std::vector<ValueId> values = in_one_dtype(context, inputs, output_dtype(dtypes_of(b, inputs)));
    std::vector<ValueId> masks(values.size(), kNone);
    for (size_t i = 0; i < values.size(); ++i) {
      const Shape wanted = expanded(shapes[i], rank);
      values[i] = wanted == shapes[i] ? values[i] : b.reshape(values[i], wanted);
      if (i < context.masks.size() && context.masks[i] != kNone)
        masks[i] = mask_beside(b, context.masks[i], values[i], DType::kBool);
    }
    if (op_ == "mul")
      return product(b, values, masks);
    if (op_ == "max" || op_ == "min")
      return extreme(b, values, masks);
    ValueId out = values[0];
    for (size_t i = 1; i < values.size(); ++i)
      out = b.binary(op_ == "average" ? "add" : op_, out, values[i]);
    return op_ == "average" ? b.div(out, static_cast<double>(inputs.size())) : out;
  }

 private:
  static std::string op_of(const std::string& class_name) {
    static const std::map<std::string, std::string> kOps = {
        {"Add", "add"},         {"Subtract", "sub"}, {"Multiply", "mul"},
        {"Average", "average"}, {"Maximum", "max"},  {"Minimum", "min"}};
    return kOps.at(class_name);
  }

  // A step that an input's mask leaves out is 1 there; one that all leave out is 0 (Keras 3
  // layers/merging/multiply.py).
  static ValueId product(Builder& b, std::span<const ValueId> values,
                         std::span<const ValueId> masks) {
    ValueId out = kNone, valid = masks[0];
    for (size_t i = 0; i < values.size(); ++i) {
      const ValueId x = masks[i] == kNone
                            ? values[i]
                            : b.select(masks[i], values[i], b.constant(1, b.dtype(values[i])));
      out = i == 0 ? x : b.mul(out, x);
      valid = either(b, valid, masks[i]);
    }
    return valid == kNone ? out : b.select(valid, out, b.constant(0, b.dtype(out)));
  }

  // Where a mask leaves a step of one of two out, the other is taken (base_merge.py).
  ValueId extreme(Builder& b, std::span<const ValueId> values,
                  std::span<const ValueId> masks) const {
    ValueId out = values[0], valid = masks[0];
    for (size_t i = 1; i < values.size(); ++i) {
      const ValueId x = masks[i] == kNone ? values[i] : b.select(masks[i], values[i], out);
      const ValueId before = valid == kNone ? out : b.select(valid, out, x);
      out = b.binary(op_, before, x);
      valid = either(b, valid, masks[i]);
    }
    return out;
  }

  // Where one of two masks holds; kNone without one of them.
  static ValueId either(Builder& b, ValueId left, ValueId right) {
    if (left == kNone || right == kNone)
      return kNone;
    return left == right ? left : b.binary("logical_or", left, right);
  }

  static size_t max_rank(std::span<const Shape> shapes) {
    size_t rank = 0;
    for (const Shape& shape : shapes) {
      rank = std::max(rank, shape.size());
    }
    return rank;
  }

  static Shape expanded(Shape shape, size_t rank) {
    shape.insert(shape.begin() + 1, rank - shape.size(), 1);
    return shape;
  }

  std::string op_;
};

class Concatenate : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  DType output_dtype(std::span<const DType> inputs) const override {
    return merged_dtype(inputs, dtype);
  }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (inputs.empty()) {
      shape_error(diagnostics, inputs, "it takes at least one input");
      return failed_shape();
    }
    Shape output = inputs[0];
    const auto axis = axis_in(config_.integer("axis"), output.size());
    if (!axis || *axis == 0) {
      shape_error(diagnostics, inputs, "`axis` must be one of its dimensions, not the batch")
          .help(output.size() < 2 ? "there is only the batch: Reshape to [1] first"
                                  : fmt::format("1 to {}, or -1 for the last", output.size() - 1));
      return failed_shape();
    }
    for (const Shape& input : inputs.subspan(1)) {
      bool fits = input.size() == output.size();
      for (size_t i = 0; fits && i < input.size(); ++i) {
        fits = static_cast<int64_t>(i) == *axis || input[i] == output[i] ||
               input[i] == kUnknownDim || output[i] == kUnknownDim;
      }
      if (!fits) {
        shape_error(diagnostics, inputs,
                    fmt::format("all dimensions but axis {} must agree", *axis))
            .help(
                "choose another `axis`, or bring them to one shape (Reshape, ZeroPadding, Dense)");
        return failed_shape();
      }
      const bool unknown = output[*axis] == kUnknownDim || input[*axis] == kUnknownDim;
      output[*axis] = unknown ? kUnknownDim : output[*axis] + input[*axis];
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const int64_t axis = *axis_in(config_.integer("axis"), b.shape(inputs[0]).size());
    std::vector<ValueId> values = in_one_dtype(context, inputs, output_dtype(dtypes_of(b, inputs)));
    return values.size() == 1 ? values[0] : b.concat(std::move(values), static_cast<int>(axis));
  }
};

}  // namespace

std::vector<LayerEntry> merge_layers() {
  return {{"Add", make_as<ElementwiseMerge>},      {"Subtract", make_as<ElementwiseMerge>},
          {"Multiply", make_as<ElementwiseMerge>}, {"Average", make_as<ElementwiseMerge>},
          {"Maximum", make_as<ElementwiseMerge>},  {"Minimum", make_as<ElementwiseMerge>},
          {"Concatenate", make_as<Concatenate>}};
}

}  // namespace meshtrain
