// Resizing and CenterCrop. Source: Keras 3 layers/preprocessing/image_preprocessing,
// jax.image.resize (R. Keys, "Cubic convolution interpolation for digital image processing", 1981).
#include "nn/resizing.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/arguments.h"
#include "nn/spatial.h"
#include "tensor/aspect_ratio.h"

namespace meshtrain {
namespace {

// Keys' cubic at distances d >= 0: 1 at 0, 0 from 2 on.
ValueId keys_cubic(Builder& b, ValueId d) {
  const auto polynomial = [&](double c3, double c2, double c1, double c0) {
    const ValueId high = b.mul(b.add(b.mul(d, c3), c2), d);
    return b.add(b.mul(b.add(high, c1), d), c0);
  };
  const ValueId near = polynomial(1.5, -2.5, 0, 1);
  const ValueId far = polynomial(-0.5, 2.5, -4, 2);
  const auto below = [&](double limit) { return b.binary("lt", d, b.constant(limit, b.dtype(d))); };
  const ValueId zero = b.constant(0, b.dtype(d));
  return b.select(below(1), near, b.select(below(2), far, zero));
}

// sinc(d) sinc(d / radius) at distances d >= 0, 0 beyond the radius.
ValueId lanczos(Builder& b, ValueId d, double radius) {
  const DType dtype = b.dtype(d);
  const double pi = std::numbers::pi;
  const ValueId is_small = b.binary("le", d, b.constant(1e-3, dtype));
  const ValueId safe = b.select(is_small, b.constant(1, dtype), d);
  const ValueId product =
      b.mul(b.unary("sin", b.mul(safe, pi)), b.unary("sin", b.mul(safe, pi / radius)));
  const ValueId value = b.div(b.mul(product, radius / (pi * pi)), b.square(safe));
  const ValueId inside = b.select(is_small, b.constant(1, dtype), value);
  return b.select(b.binary("gt", d, b.constant(radius, dtype)), b.constant(0, dtype), inside);
}

// The weights (size, input) of the inputs in each output, in float64.
ValueId resize_weights(Builder& b, int64_t input, int64_t size, std::string_view method,
                       bool antialias) {
  const DType dtype = DType::kFloat64;
  const ValueId to = b.iota({size, input}, 0, dtype);
  const ValueId from = b.iota({size, input}, 1, dtype);
  const double step = static_cast<double>(input) / static_cast<double>(size);
  const ValueId centre = b.mul(b.add(to, 0.5), step);
  if (method == "nearest") {
    return b.cast(b.binary("eq", b.unary("floor", centre), from), dtype);
  }
  ValueId distance = b.unary("abs", b.sub(b.sub(centre, 0.5), from));
  if (antialias && step > 1) {
    distance = b.div(distance, step);
  }
  ValueId weights = kNone;
  if (method == "bilinear") {
    weights = b.maximum(b.add(b.neg(distance), 1.0), 0.0);
  } else if (method == "bicubic") {
    weights = keys_cubic(b, distance);
  } else {
    weights = lanczos(b, distance, method == "lanczos3" ? 3 : 5);
  }
  return b.div(weights, b.reduce_sum(weights, {1}, true));
}

// Dimension `axis` of x (N, H, W, C) becomes `size` long.
ValueId resize_axis(Builder& b, ValueId x, int axis, int64_t size, std::string_view method,
                    bool antialias) {
  const int64_t input = b.shape(x)[static_cast<size_t>(axis)];
  if (input == size) {
    return x;
  }
  const ValueId weights = b.cast(resize_weights(b, input, size, method, antialias), b.dtype(x));
  return b.einsum(axis == 1 ? "nhwc,ph->npwc" : "nhwc,pw->nhpc", {x, weights});
}

}  // namespace

ValueId resize(Builder& b, ValueId x, int64_t height, int64_t width, std::string_view method,
               bool antialias) {
  return resize_axis(b, resize_axis(b, x, 1, height, method, antialias), 2, width, method,
                     antialias);
}

ValueId center_crop(Builder& b, ValueId x, int64_t height, int64_t width) {
  const int64_t top = (b.shape(x)[1] - height) / 2, left = (b.shape(x)[2] - width) / 2;
  return b.slice(b.slice(x, 1, top, top + height), 2, left, left + width);
}

ValueId crop_to_aspect_ratio(Builder& b, ValueId x, int64_t height, int64_t width) {
  const Shape shape = b.shape(x);
  const int64_t h = std::clamp<int64_t>(fitting_side(shape[2], height, width), 1, shape[1]);
  const int64_t w = std::clamp<int64_t>(fitting_side(shape[1], width, height), 1, shape[2]);
  return center_crop(b, x, h, w);
}

ValueId pad_to_aspect_ratio(Builder& b, ValueId x, int64_t height, int64_t width, double value) {
  const Shape shape = b.shape(x);
  const int64_t rows = (std::max(shape[1], fitting_side(shape[2], height, width)) - shape[1]) / 2;
  if (rows > 0) {
    return b.pad(x, 1, rows, rows, value);
  }
  const int64_t columns =
      (std::max(shape[2], fitting_side(shape[1], width, height)) - shape[2]) / 2;
  return columns > 0 ? b.pad(x, 2, columns, columns, value) : x;
}

namespace {

// To (height, width), whole or keeping the aspect ratio.
class Resizing : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (config_.boolean("crop_to_aspect_ratio") && config_.boolean("pad_to_aspect_ratio")) {
      argument_error(diagnostics, "pad_to_aspect_ratio",
                     "is set together with `crop_to_aspect_ratio`")
          .help("set only one of them");
    }
    return {input[0], config_.integer("height"), config_.integer("width"), input[3]};
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    const int64_t height = config_.integer("height"), width = config_.integer("width");
    if (config_.boolean("crop_to_aspect_ratio")) {
      x = crop_to_aspect_ratio(b, x, height, width);
    } else if (config_.boolean("pad_to_aspect_ratio")) {
      x = pad_to_aspect_ratio(b, x, height, width, config_.number("fill_value"));
    }
    return resize(b, x, height, width, config_.string("interpolation"),
                  config_.boolean("antialias"));
  }
};

// The middle; an image that is too small is cropped to the aspect ratio and resized.
class CenterCrop : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics&) override {
    return {input[0], config_.integer("height"), config_.integer("width"), input[3]};
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    const Shape shape = b.shape(x);
    const int64_t height = config_.integer("height"), width = config_.integer("width");
    if (shape[1] < height || shape[2] < width) {
      return resize(b, crop_to_aspect_ratio(b, x, height, width), height, width, "bilinear", false);
    }
    return center_crop(b, x, height, width);
  }
};

}  // namespace

std::vector<LayerEntry> resizing_layers() {
  return {{"Resizing", make_as<Resizing>}, {"CenterCrop", make_as<CenterCrop>}};
}

}  // namespace meshtrain
