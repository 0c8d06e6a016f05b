// Pools, convolutions and patches, over images (batch, spatial..., channels). Source: Keras 3.15
// ops/nn.py, ops/image.py.
#include <algorithm>

#include "nn/conv.h"
#include "nn/graph_parts.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;
using Integers = std::vector<int64_t>;

constexpr int64_t kMaxWindow = 65536;
constexpr int64_t kMaxCells = 1024;  // of a patch that is put together from slices

// An operand with its channels last, whatever `data_format` says.
struct Images {
  ValueId x;
  bool channels_first;
  size_t rank;  // spatial dimensions
};

Images images_of(Context& c, ValueId x) {
  const size_t all = c.rank(x);
  if (all < 3 || all > 5) {
    operation_error(fmt::format("it takes (batch, 1 to 3 spatial dimensions, channels), not {}",
                                shape_string(c.b.shape(x))));
  }
  const bool first = c.channels_first();
  return {first ? move_axis(c.b, x, 1, all - 1) : x, first, all - 2};
}

ValueId as_given(Context& c, const Images& images, ValueId y) {
  return images.channels_first ? move_axis(c.b, y, c.rank(y) - 1, 1) : y;
}

// One number for each spatial dimension, above 0.
Integers per_dimension(Context& c, std::string_view name, size_t rank) {
  Integers out = c.integers(name);
  if (out.size() == 1) {
    out.resize(rank, out[0]);
  }
  const auto is_outside = [](int64_t n) { return n < 1 || n > kMaxWindow; };
  if (out.size() != rank || std::any_of(out.begin(), out.end(), is_outside)) {
    operation_error(
        fmt::format("`{}` must be one number from 1 to {}, or {} of them", name, kMaxWindow, rank));
  }
  return out;
}

Window window_of(Context& c, const Images& images, const Integers& cells, const Integers& strides,
                 const Integers& dilations) {
  const std::string padding = c.text("padding");
  if (padding != "valid" && padding != "same") {
    operation_error(fmt::format("`padding` must be \"valid\" or \"same\", not \"{}\"", padding));
  }
  Window out{strides, dilations, {}, {}};
  for (size_t d = 0; d < images.rank; ++d) {
    const int64_t size = c.b.shape(images.x)[d + 1];
    const AxisWindow axis = axis_window(padding, size, cells[d], strides[d], dilations[d]);
    if (axis.outputs < 1) {
      operation_error(fmt::format("a window of {} cells is larger than its dimension of {}",
                                  (cells[d] - 1) * dilations[d] + 1, size),
                      "use padding=\"same\", or a smaller window");
    }
    out.pads_before.push_back(axis.before);
    out.pads_after.push_back(axis.after);
  }
  return out;
}

Integers strides_or(Context& c, size_t rank, const Integers& otherwise) {
  return c.is_null("strides") ? otherwise : per_dimension(c, "strides", rank);
}

template <bool largest>
ValueId pool(Context& c) {
  const Images images = images_of(c, c.floating(0));
  const Integers cells = per_dimension(c, "pool_size", images.rank);
  const Window window =
      window_of(c, images, cells, strides_or(c, images.rank, cells), Integers(images.rank, 1));
  return as_given(
      c, images,
      largest ? c.b.max_pool(images.x, cells, window) : c.b.avg_pool(images.x, cells, window));
}

template <bool largest>
ValueId adaptive(Context& c) {
  const Images images = images_of(c, c.floating(0));
  const Integers sizes = per_dimension(c, "output_size", images.rank);
  return as_given(c, images, adaptive_pool(c.b, images.x, sizes, largest));
}

// --- convolutions --------------------------------------------------------------------------------

struct Convolved {
  Images images;
  std::vector<ValueId> kernels;
  Integers cells, strides, dilations;  // of the first kernel
};

// `in_axis`: which of a kernel's last two dimensions, counted from the end, has the input's
// channels, or a divisor of their number.
Convolved convolved(Context& c, size_t in_axis) {
  std::vector<ValueId> x = c.promoted(c.operands);
  if (!is_floating(c.b.dtype(x[0]))) {
    operation_error("convolutions are of floats", "cast(x, \"float32\") makes integers such");
  }
  Convolved out{images_of(c, x[0]), {x.begin() + 1, x.end()}, {}, {}, {}};
  const size_t rank = out.images.rank;
  const int64_t channels = c.b.shape(out.images.x).back();
  for (const ValueId kernel : out.kernels) {
    const Shape& shape = c.b.shape(kernel);
    if (shape.size() != rank + 2 ||
        (kernel == out.kernels[0] && channels % shape[shape.size() - in_axis] != 0)) {
      operation_error(fmt::format("a kernel {} does not fit {} channels and {} spatial dimensions",
                                  shape_string(shape), channels, rank),
                      "a kernel is (cells of each dimension, channels in, channels out)");
    }
  }
  const Shape& first = c.b.shape(out.kernels[0]);
  out.cells.assign(first.begin(), first.end() - 2);
  out.strides = per_dimension(c, "strides", rank);
  out.dilations = per_dimension(c, "dilation_rate", rank);
  return out;
}

ValueId conv(Context& c) {
  const Convolved v = convolved(c, 2);
  const Shape& kernel = c.b.shape(v.kernels[0]);
  const int64_t groups = c.b.shape(v.images.x).back() / kernel[kernel.size() - 2];
  if (kernel.back() % groups != 0) {
    operation_error(fmt::format("{} groups do not divide the {} channels of the kernel", groups,
                                kernel.back()));
  }
  const Window window = window_of(c, v.images, v.cells, v.strides, v.dilations);
  return as_given(c, v.images, c.b.conv(v.images.x, v.kernels[0], window));
}

// Every channel has filters of its own.
ValueId apply_depthwise(Context& c, const Convolved& v) {
  const Shape& kernel = c.b.shape(v.kernels[0]);
  const int64_t channels = c.b.shape(v.images.x).back();
  if (kernel[kernel.size() - 2] != channels) {
    operation_error(
        fmt::format("the kernel {} is not of {} channels", shape_string(kernel), channels));
  }
  const Window window = window_of(c, v.images, v.cells, v.strides, v.dilations);
  return depthwise(c.b, v.images.x, v.kernels[0], window);
}

ValueId depthwise_conv(Context& c) {
  const Convolved v = convolved(c, 2);
  return as_given(c, v.images, apply_depthwise(c, v));
}

ValueId separable_conv(Context& c) {
  const Convolved v = convolved(c, 2);
  const ValueId x = apply_depthwise(c, v);
  Shape expected(v.images.rank, 1);
  expected.push_back(c.b.shape(x).back());
  const Shape& point = c.b.shape(v.kernels[1]);
  if (!std::equal(expected.begin(), expected.end(), point.begin())) {
    operation_error(fmt::format("the pointwise kernel {} does not take {} channels",
                                shape_string(point), expected.back()));
  }
  const Integers ones(v.images.rank, 1), zeros(v.images.rank, 0);
  return as_given(c, v.images, c.b.conv(x, v.kernels[1], Window{ones, ones, zeros, zeros}));
}

ValueId conv_transpose(Context& c) {
  const Convolved v = convolved(c, 1);
  const Shape& kernel = c.b.shape(v.kernels[0]);
  const std::string padding = c.text("padding");
  if (kernel.back() != c.b.shape(v.images.x).back() || (padding != "valid" && padding != "same")) {
    operation_error("the kernel is (cells, channels out, channels in), `padding` valid or same");
  }
  Integers extra;
  if (!c.is_null("output_padding")) {
    extra = c.integers("output_padding");
    extra.resize(extra.size() == 1 ? v.images.rank : extra.size(), extra[0]);
    for (size_t d = 0; d < extra.size(); ++d) {
      if (extra.size() != v.images.rank || extra[d] < 0 || extra[d] >= v.strides[d]) {
        operation_error("`output_padding` must be from 0 to below the stride, for each dimension");
      }
    }
  }
  const TransposedWindow t =
      transposed_window(c.b.shape(v.images.x), padding == "same", v.cells, v.strides, v.dilations,
                        extra, kernel[kernel.size() - 2]);
  if (*std::min_element(t.output.begin(), t.output.end()) < 1) {
    operation_error("nothing is left of its output", "use padding=\"valid\"");
  }
  return as_given(c, v.images, c.b.conv_dgrad(v.images.x, v.kernels[0], t.window, t.output));
}

// --- patches -------------------------------------------------------------------------------------

// Patches side by side: a reshape, as each element is in one of them.
ValueId apart_patches(Context& c, ValueId x, const Integers& cells) {
  Shape split = {c.b.shape(x)[0]}, merged = split;
  std::vector<int64_t> order = {0}, inner;
  int64_t features = c.b.shape(x).back();
  for (size_t d = 0; d < cells.size(); ++d) {
    const int64_t count = c.b.shape(x)[d + 1] / cells[d];
    x = c.b.slice(x, static_cast<int>(d) + 1, 0, count * cells[d]);
    order.push_back(static_cast<int64_t>(split.size()));
    inner.push_back(static_cast<int64_t>(split.size()) + 1);
    split.insert(split.end(), {count, cells[d]});
    merged.push_back(count);
    features *= cells[d];
  }
  order.insert(order.end(), inner.begin(), inner.end());
  order.push_back(static_cast<int64_t>(split.size()));
  split.push_back(c.b.shape(x).back());
  merged.push_back(features);
  return c.b.reshape(c.b.transpose(c.b.reshape(x, split), order), merged);
}

// Each cell of the windows as one slice of the padded images; cells in order, with all channels.
ValueId sliced_patches(Context& c, ValueId x, const Integers& cells, const Window& window) {
  const size_t rank = cells.size();
  int64_t count = 1;
  Shape outputs;
  for (size_t d = 0; d < rank; ++d) {
    const int axis = static_cast<int>(d) + 1;
    x = c.b.pad(x, axis, window.pads_before[d], window.pads_after[d]);
    const int64_t reach = (cells[d] - 1) * window.dilations[d] + 1;
    outputs.push_back((c.b.shape(x)[d + 1] - reach) / window.strides[d] + 1);
    count *= cells[d];
  }
  if (count > kMaxCells) {
    operation_error(fmt::format("patches that overlap have at most {} cells", kMaxCells));
  }
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < count; ++i) {
    ValueId part = x;
    int64_t rest = i;
    for (size_t d = rank; d-- > 0;) {
      const int64_t begin = rest % cells[d] * window.dilations[d];
      rest /= cells[d];
      part = c.b.slice(part, static_cast<int>(d) + 1, begin,
                       begin + (outputs[d] - 1) * window.strides[d] + 1, window.strides[d]);
    }
    parts.push_back(part);
  }
  return parts.size() == 1 ? parts[0] : c.b.concat(std::move(parts), static_cast<int>(rank) + 1);
}

ValueId extract_patches(Context& c) {
  const Images images = images_of(c, c.tensor(0));
  const Integers size = c.integers("size");
  if (images.rank != (size.size() == 3 ? 3 : 2)) {
    operation_error(
        fmt::format("patches are of images of 4 dimensions, or of 5 where `size` has "
                    "three numbers, not of {}",
                    shape_string(c.b.shape(images.x))));
  }
  const Integers cells = per_dimension(c, "size", images.rank);
  const Integers strides = strides_or(c, images.rank, cells);
  const Integers dilations = per_dimension(c, "dilation_rate", images.rank);
  const Window window = window_of(c, images, cells, strides, dilations);
  const bool apart = strides == cells && dilations == Integers(images.rank, 1) &&
                     window.pads_before == Integers(images.rank, 0) &&
                     window.pads_after == Integers(images.rank, 0);
  return as_given(
      c, images,
      apart ? apart_patches(c, images.x, cells) : sliced_patches(c, images.x, cells, window));
}

}  // namespace

std::vector<Operation> window_operations() {
  constexpr std::string_view kPool =
      "pool_size, strides=None, padding='valid', data_format='channels_last'";
  constexpr std::string_view kAdaptive = "output_size, data_format='channels_last'";
  constexpr std::string_view kConv =
      "strides=1, padding='valid', data_format='channels_last', dilation_rate=1";
  return {
      {"max_pool", "MaxPool", "nn", "inputs", kPool, pool<true>},
      {"average_pool", "AveragePool", "nn", "inputs", kPool, pool<false>},
      {"adaptive_max_pool", "AdaptiveMaxPool", "nn", "inputs", kAdaptive, adaptive<true>},
      {"adaptive_average_pool", "AdaptiveAveragePool", "nn", "inputs", kAdaptive, adaptive<false>},
      {"conv", "Conv", "nn", "inputs, kernel", kConv, conv},
      {"depthwise_conv", "DepthwiseConv", "nn", "inputs, kernel", kConv, depthwise_conv},
      {"separable_conv", "SeparableConv", "nn", "inputs, depthwise_kernel, pointwise_kernel", kConv,
       separable_conv},
      {"conv_transpose", "ConvTranspose", "nn", "inputs, kernel",
       "strides=1, padding='valid', output_padding=None, data_format='channels_last', "
       "dilation_rate=1",
       conv_transpose},
      {"extract_patches", "ExtractPatches", "image", "images",
       "size, strides=None, dilation_rate=1, padding='valid', data_format='channels_last'",
       extract_patches},
  };
}

}  // namespace meshtrain
