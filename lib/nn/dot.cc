// Dot: batch-wise product of two inputs over one axis of each. Source: Keras 3
// layers/merging/dot.py.
#include "nn/arguments.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

struct DotAxes {
  int64_t a, b;  // counted from 0, batch included
};

class Dot : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (inputs.size() != 2) {
      shape_error(diagnostics, inputs, "it takes exactly two inputs").help("`inputs: [a, b]`");
      return failed_shape();
    }
    const std::optional<DotAxes> axes = axes_for(inputs[0].size(), inputs[1].size());
    if (!axes || axes->a == 0 || axes->b == 0) {
      shape_error(diagnostics, inputs, "`axes` must be dimensions of both, not the batch")
          .help("1 is the first dimension after the batch, -1 the last; or one for each input");
      return failed_shape();
    }
    const int64_t a = inputs[0][axes->a];
    const int64_t b = inputs[1][axes->b];
    if (a != b && a != kUnknownDim && b != kUnknownDim) {
      shape_error(
          diagnostics, inputs,
          fmt::format("sizes {} and {} along `axes` {} and {} differ", a, b, axes->a, axes->b))
          .help("choose other `axes`, one for each input");
      return failed_shape();
    }
    Shape output = inputs[0];
    output.erase(output.begin() + axes->a);
    for (size_t i = 1; i < inputs[1].size(); ++i) {
      if (static_cast<int64_t>(i) != axes->b) {
        output.push_back(inputs[1][i]);
      }
    }
    if (output.size() == 1) {
      output.push_back(1);
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& builder = context.builder;
    ValueId a = to_compute(context, inputs[0]);
    ValueId b = to_compute(context, inputs[1]);
    const DotAxes axes = *axes_for(builder.shape(a).size(), builder.shape(b).size());
    if (config_.boolean("normalize")) {
      a = l2_normalized(builder, a, axes.a);
      b = l2_normalized(builder, b, axes.b);
    }
    // Letters: A the batch, k the contracted dimension, the others in order.
    std::string left = "A", right = "A", out = "A";
    char next = 'B';
    const auto append = [&](std::string& letters, size_t rank, int64_t axis) {
      for (size_t i = 1; i < rank; ++i) {
        if (static_cast<int64_t>(i) == axis) {
          letters += 'k';
        } else {
          letters += next;
          out += next++;
        }
      }
    };
    append(left, builder.shape(a).size(), axes.a);
    append(right, builder.shape(b).size(), axes.b);
    const ValueId product = builder.einsum(left + "," + right + "->" + out, {a, b});
    return out.size() == 1 ? builder.expand_dims(product, 1) : product;
  }

 private:
  std::optional<DotAxes> axes_for(size_t a_rank, size_t b_rank) const {
    const ConfigValue& value = config_.arg("axes");
    const std::vector<int64_t> given =
        value.is_list() ? value.integers() : std::vector<int64_t>(2, value.integer());
    if (given.size() != 2) {
      return std::nullopt;
    }
    const auto a = axis_in(given[0], a_rank);
    const auto b = axis_in(given[1], b_rank);
    return a && b ? std::optional(DotAxes{*a, *b}) : std::nullopt;
  }
};

}  // namespace

std::vector<LayerEntry> dot_layers() {
  return {{"Dot", make_as<Dot>}};
}

}  // namespace meshtrain
