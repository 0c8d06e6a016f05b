// RandomRotation, RandomTranslation, RandomZoom, RandomShear, RandomPerspective,
// RandomElasticTransform: images sampled at other places.
// Sources: Keras 3 layers/preprocessing/image_preprocessing; P. Y. Simard, D. Steinkraus, J. C.
// Platt, "Best practices for convolutional neural networks", 2003 (elastic).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/arguments.h"
#include "nn/augmentation.h"
#include "nn/graph_parts.h"
#include "nn/random.h"

namespace meshtrain {
namespace {

// The op that takes pixels from `places`, as a layer with the arguments `config` fills in what is
// outside.
MovingLayer::Move sampled_at(Builder& b, const ConfigObject& config, ValueId places) {
  return [&b, &config, places](ValueId x, bool nearest) {
    return b.apply("affine_warp", {x, places},
                   {{"interpolation", nearest ? "nearest" : config.string("interpolation")},
                    {"fill", string_or(config, "fill_mode", "constant")},
                    {"fill_value", config.number("fill_value")}});
  };
}

// A layer that samples images at affine coordinates, drawn per image.
class WarpLayer : public MovingLayer {
 public:
  using MovingLayer::MovingLayer;

  Move draw_move(CallContext& context, ValueId images) const override {
    Builder& b = context.builder;
    const Shape shape = b.shape(images);
    return sampled_at(b, config_, b.concat(coefficients(context, shape), 1));
  }

 protected:
  // Coefficients of affine_warp, each float64 (N, 1): column = a[0] j + a[1] i + a[2], row = a[3] j
  // + a[4] i + a[5]; of eight, both divided by a[6] j + a[7] i + 1.
  virtual std::vector<ValueId> coefficients(CallContext& context, const Shape& shape) const = 0;
  // float64 (N, 1).
  ValueId draw_column(CallContext& context, const Shape& shape, DrawRange range) const {
    CallContext in_double = context;
    in_double.compute_dtype = DType::kFloat64;
    return random_uniform(in_double, {shape[0], 1}, seed(context), range.low, range.high);
  }
  static ValueId column_of(Builder& b, const Shape& shape, double value) {
    return b.constant(value, DType::kFloat64, {shape[0], 1});
  }
};

// About the centre of the image, by parts of a full turn.
class RandomRotation : public WarpLayer {
 public:
  using WarpLayer::WarpLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", -1, 1, true, diagnostics);
  }
  std::vector<ValueId> coefficients(CallContext& context, const Shape& shape) const override {
    Builder& b = context.builder;
    const double turn = 2 * std::numbers::pi;
    const DrawRange parts = interval("factor", -1);
    const ValueId angle = draw_column(context, shape, {parts.low * turn, parts.high * turn});
    const ValueId cosine = b.unary("cos", angle), sine = b.unary("sin", angle);
    const double x = static_cast<double>(shape[2] - 1) / 2,
                 y = static_cast<double>(shape[1] - 1) / 2;
    // centre + rotation (place - centre)
    const ValueId column = b.add(b.sub(b.mul(sine, y), b.mul(cosine, x)), x);
    const ValueId row = b.add(b.neg(b.add(b.mul(sine, x), b.mul(cosine, y))), y);
    return {cosine, b.neg(sine), column, sine, cosine, row};
  }
};

// By parts of the height and the width.
class RandomTranslation : public WarpLayer {
 public:
  using WarpLayer::WarpLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("height_factor", -1, 1, false, diagnostics);
    check_interval("width_factor", -1, 1, false, diagnostics);
  }
  std::vector<ValueId> coefficients(CallContext& context, const Shape& shape) const override {
    Builder& b = context.builder;
    const auto shift = [&](const char* argument, int64_t size) {
      const ValueId parts = draw_column(context, shape, interval(argument, -1));
      return b.mul(parts, -static_cast<double>(size));
    };
    const ValueId rows = shift("height_factor", shape[1]);
    const ValueId columns = shift("width_factor", shape[2]);
    const ValueId one = column_of(b, shape, 1), zero = column_of(b, shape, 0);
    return {one, zero, columns, zero, one, rows};
  }
};

// About the centre; factors above 0 make what is seen smaller.
class RandomZoom : public WarpLayer {
 public:
  using WarpLayer::WarpLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    for (const char* argument : {"height_factor", "width_factor"}) {
      if (value_or_null(config_, argument).is_null()) {
        continue;
      }
      check_interval(argument, -1, 1, false, diagnostics);
      const std::vector<double> given = numbers_of(config_.arg(argument));
      if (std::find(given.begin(), given.end(), -1.0) != given.end()) {
        argument_error(diagnostics, argument, "is -1, must be above it")
            .help("at -1 nothing of the image would be left");
      }
    }
  }
  std::vector<ValueId> coefficients(CallContext& context, const Shape& shape) const override {
    Builder& b = context.builder;
    const auto zoom = [&](const char* argument) {
      const DrawRange factor = interval(argument, -1);
      return draw_column(context, shape, {1 + factor.low, 1 + factor.high});
    };
    const ValueId rows = zoom("height_factor");
    const ValueId columns =
        value_or_null(config_, "width_factor").is_null() ? rows : zoom("width_factor");
    const auto offset = [&](ValueId factor, int64_t size) {
      return b.mul(b.add(b.neg(factor), 1.0), static_cast<double>(size - 1) / 2);
    };
    const ValueId zero = column_of(b, shape, 0);
    return {columns, zero, offset(columns, shape[2]), zero, rows, offset(rows, shape[1])};
  }
};

// Rows and columns shifted in proportion to the other coordinate, both to the same random side.
class RandomShear : public WarpLayer {
 public:
  using WarpLayer::WarpLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("x_factor", -1, 1, false, diagnostics);
    check_interval("y_factor", -1, 1, false, diagnostics);
  }
  std::vector<ValueId> coefficients(CallContext& context, const Shape& shape) const override {
    Builder& b = context.builder;
    const ValueId side = b.select(random_chance(context, {shape[0], 1}, seed(context), 0.5),
                                  column_of(b, shape, -1), column_of(b, shape, 1));
    const auto shear = [&](const char* argument) {
      return b.mul(draw_column(context, shape, interval(argument, -1)), side);
    };
    const ValueId columns = shear("x_factor"), rows = shear("y_factor");
    const ValueId one = column_of(b, shape, 1), zero = column_of(b, shape, 0);
    return {one, columns, zero, rows, one, zero};
  }
};

// The image as if its corners were moved, each coordinate by a part of itself: (0, 0) stays.
class RandomPerspective : public WarpLayer {
 public:
  using WarpLayer::WarpLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
  }

  Move draw_move(CallContext& context, ValueId images) const override {
    const ValueId applies = draw_chance(context, images, interval("factor", 0));
    return [&b = context.builder, applies, warp = WarpLayer::draw_move(context, images)](
               ValueId x, bool nearest) { return b.select(applies, warp(x, nearest), x); };
  }

  // The homography that takes the moved corners (right, 0), (0, bottom) and (far right, far
  // bottom), in parts of the sides, back to (1, 0), (0, 1) and (1, 1).
  std::vector<ValueId> coefficients(CallContext& context, const Shape& shape) const override {
    Builder& b = context.builder;
    const double most = config_.number("scale") / 2;
    const auto moved = [&] { return b.add(draw_column(context, shape, {-most, most}), 1.0); };
    const ValueId right = moved(), bottom = moved(), far_right = moved(), far_bottom = moved();
    const auto side = [](int64_t size) { return std::max(static_cast<double>(size - 1), 1.0); };
    const ValueId across = b.mul(far_right, bottom), down = b.mul(right, far_bottom);
    const ValueId area = b.sub(b.add(across, down), b.mul(right, bottom));
    const ValueId zero = column_of(b, shape, 0);
    return {b.div(area, b.mul(right, across)),
            zero,
            zero,
            zero,
            b.div(area, b.mul(bottom, down)),
            zero,
            b.div(b.sub(far_bottom, bottom), b.mul(across, side(shape[2]))),
            b.div(b.sub(far_right, right), b.mul(down, side(shape[1])))};
  }
};

// Each pixel from a place near its own. The shifts are normal numbers, smoothed by a Gaussian whose
// width is drawn for the batch; the kernel has room for the widest one.
class RandomElasticTransform : public MovingLayer {
 public:
  using MovingLayer::MovingLayer;

  Move draw_move(CallContext& context, ValueId images) const override {
    Builder& b = context.builder;
    const DrawRange scale = drawn_range("scale");
    if (scale.high == 0 || drawn_range("factor").high == 0) {
      return [](ValueId x, bool) { return x; };  // without clipping, as in Keras
    }
    const Shape shape = b.shape(images);
    CallContext wide = context;
    wide.compute_dtype = DType::kFloat64;
    const ValueId strength =
        random_uniform(wide, {1, 1, 1, 1}, seed(context), scale.low, scale.high);
    const ValueId columns = place(wide, shape, 2, strength), rows = place(wide, shape, 1, strength);
    const Move bend = sampled_at(b, config_, b.concat({columns, rows}, 3));
    const ValueId is_bent = draw_chance(context, images, drawn_range("factor"));
    return [=, this, &b](ValueId x, bool nearest) {
      const ValueId bent = b.select(is_bent, bend(x, nearest), x);
      return nearest ? bent : clamp_to(b, bent, value_range());
    };
  }

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
    check_interval("scale", 0, 1, true, diagnostics);
  }

 private:
  // Keras takes lists that reach beyond [0, 1]: no chance is more than 1.
  DrawRange drawn_range(const char* argument) const { return interval(argument, 0); }

  // float64 (N, H, W, 1): the row (axis 1) or the column (axis 2) where each pixel is from.
  ValueId place(CallContext& context, const Shape& shape, int axis, ValueId strength) const {
    Builder& b = context.builder;
    const auto longest = static_cast<double>(std::max(shape[1], shape[2]));
    const auto shortest = static_cast<double>(std::min(shape[1], shape[2]));
    const ValueId width = b.mul(strength, 0.05 * shortest);
    const ValueId noise =
        b.mul(random_normal(context, {shape[0], shape[1], shape[2], 1}, seed(context)), width);
    const double widest = 0.05 * shortest * drawn_range("scale").high;
    const int64_t size = static_cast<int64_t>(6 * widest) | 1;
    const ValueId weights = b.reshape(gaussian(b, b.reshape(width, {1}), size), {size, 1, 1, 1});
    const ValueId down = b.conv(noise, weights, {{1, 1}, {1, 1}, {size / 2, 0}, {size / 2, 0}});
    const ValueId smooth = b.conv(down, b.reshape(weights, {1, size, 1, 1}),
                                  {{1, 1}, {1, 1}, {0, size / 2}, {0, size / 2}});
    Shape line = {1, 1, 1, 1};
    line[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
    const ValueId shift = b.mul(smooth, b.mul(strength, 0.1 * longest));
    return b.add(shift, b.iota(line, axis, DType::kFloat64));
  }

  // (size,), of sum 1: exp(-i^2 / 2 width^2) around the middle, in the odd number of 6 widths.
  static ValueId gaussian(Builder& b, ValueId width, int64_t size) {
    const ValueId used = b.unary("floor", b.mul(width, 6.0));
    const ValueId i = b.sub(b.iota({size}, 0, DType::kFloat64), static_cast<double>(size - 1) / 2);
    const ValueId far = b.mul(b.unary("abs", i), 2.0);
    const ValueId part = b.div(i, b.maximum(width, 1e-6));
    const ValueId weight = b.exp(b.mul(b.square(part), -0.5));
    const ValueId kept = b.select(b.binary("le", far, used), weight, constant_like(b, weight, 0));
    return b.div(kept, b.reduce_sum(kept, {0}, true));
  }
};

}  // namespace

std::vector<LayerEntry> warp_layers() {
  return {{"RandomRotation", make_as<RandomRotation>},
          {"RandomTranslation", make_as<RandomTranslation>},
          {"RandomZoom", make_as<RandomZoom>},
          {"RandomShear", make_as<RandomShear>},
          {"RandomPerspective", make_as<RandomPerspective>},
          {"RandomElasticTransform", make_as<RandomElasticTransform>}};
}

}  // namespace meshtrain
