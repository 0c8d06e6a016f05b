// Conv1D/2D/3DTranspose: the transpose of a convolution, with Keras' choice of what is cropped.
// Source: Keras 3 layers/convolutional/base_conv_transpose.py and
// backend/common/backend_utils.py.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/conv.h"

namespace meshtrain {
namespace {

// The position of the output in the scattered input, along one dimension. Without cropping,
// position i * stride + j * dilation receives x[i] K[j].
struct Crop {
  int64_t before = 0;  // positions cut at the beginning
  int64_t size = 0;    // of the output
};

Crop crop_of(bool same, int64_t input, int64_t reach, int64_t stride,
             std::optional<int64_t> output_padding) {
  if (!same) {
    const int64_t extra = output_padding.value_or(std::max(reach, stride) - reach);
    return {0, (input - 1) * stride + reach + extra};
  }
  const int64_t parity = reach % 2;
  const int64_t padding =
      output_padding ? reach + parity - 2 + *output_padding : stride + reach - 2;
  const int64_t left = std::min((padding + 1) / 2, reach - 1);
  const int64_t size =
      output_padding ? (input - 1) * stride + parity + *output_padding : input * stride;
  return {reach - 1 - left, size};
}

}  // namespace

TransposedWindow transposed_window(const Shape& input, bool same, const std::vector<int64_t>& cells,
                                   const std::vector<int64_t>& strides,
                                   const std::vector<int64_t>& dilations,
                                   const std::vector<int64_t>& output_padding, int64_t filters) {
  TransposedWindow out{{strides, dilations, {}, {}}, {input[0]}};
  for (size_t d = 0; d < cells.size(); ++d) {
    const int64_t reach = (cells[d] - 1) * dilations[d] + 1;
    const Crop crop =
        crop_of(same, input[d + 1], reach, strides[d],
                output_padding.empty() ? std::nullopt : std::optional<int64_t>(output_padding[d]));
    // Its last window ends at (input - 1) * stride + reach.
    const int64_t end = (input[d + 1] - 1) * strides[d] + reach;
    out.window.pads_before.push_back(crop.before);
    out.window.pads_after.push_back(std::max<int64_t>(end - crop.size - crop.before, 0));
    out.output.push_back(crop.size);
  }
  out.output.push_back(filters);
  return out;
}

namespace {

// kernel (k..., filters, in), bias (filters).
class ConvTranspose : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const auto extra = per_dimension("output_padding", diagnostics);
    if (!read_strict_window(diagnostics) || !extra) {
      return failed_shape();
    }
    output_padding_ = *extra;
    for (size_t d = 0; d < output_padding_.size(); ++d) {
      if (output_padding_[d] >= strides_[d]) {
        argument_error(diagnostics, "output_padding",
                       fmt::format("is {} at a stride of {}, must be below it", output_padding_[d],
                                   strides_[d]))
            .help(
                fmt::format("write at most {}, or leave it to Keras' rule: null", strides_[d] - 1));
        return failed_shape();
      }
    }
    const int64_t filters = config_.integer("filters");
    const Shape output = transpose_of(input).output;
    for (size_t d = 0; d < rank(); ++d) {
      if (output[d + 1] < 1) {
        input_error(diagnostics, "nothing is left of its output")
            .help("use `padding: valid`, or a larger output_padding");
        return failed_shape();
      }
    }
    kernel_ = add_weight("kernel", kernel_shape(filters, input.back()));
    add_bias(filters);
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    const TransposedWindow transpose = transpose_of(b.shape(x));
    return plus_bias(context,
                     b.conv_dgrad(x, context.weight(kernel_), transpose.window, transpose.output));
  }

 private:
  TransposedWindow transpose_of(const Shape& input) const {
    return transposed_window(input, config_.string("padding") == "same", cells_, strides_,
                             dilations_, output_padding_, config_.integer("filters"));
  }

  std::vector<int64_t> output_padding_;  // empty: Keras' own choice
  int kernel_ = kNone;
};

}  // namespace

std::vector<LayerEntry> conv_transpose_layers() {
  return {{"Conv1DTranspose", make_as<ConvTranspose>},
          {"Conv2DTranspose", make_as<ConvTranspose>},
          {"Conv3DTranspose", make_as<ConvTranspose>}};
}

}  // namespace meshtrain
