// RandomSharpness, RandomGaussianBlur, RandomErasing: random changes over neighbouring pixels.
// Source: Keras 3 layers/preprocessing/image_preprocessing.
#include "nn/arguments.h"
#include "nn/augmentation.h"
#include "nn/random.h"

namespace meshtrain {
namespace {

// Each channel of x (N, H, W, C) filtered by `kernel` (rows, columns), both odd, around every
// pixel; 0 lies outside of the image.
ValueId filtered(Builder& b, ValueId x, ValueId kernel) {
  const Shape size = b.shape(kernel);
  const int64_t channels = b.shape(x)[3];
  const ValueId each =
      b.broadcast_to(b.reshape(kernel, {size[0], size[1], 1, 1}), {size[0], size[1], 1, channels});
  const std::vector<int64_t> pads = {size[0] / 2, size[1] / 2};
  return b.conv(x, each, {{1, 1}, {1, 1}, pads, pads});
}

// Between the smoothed image, at 0, and its contrary, at 1; 0.5 changes nothing.
class RandomSharpness : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const double rim = 1.0 / 13, centre = 5.0 / 13;
    const ValueId kernel = b.reshape(
        vector_of(b, {rim, rim, rim, rim, centre, rim, rim, rim, rim}, b.dtype(x)), {3, 3});
    const ValueId f = b.mul(draw(context, x, interval("factor", 0)), 2.0);
    const ValueId smoothing = b.mul(b.add(b.neg(f), 1.0), b.sub(filtered(b, x, kernel), x));
    return clamp_to(b, b.add(x, smoothing), value_range());
  }
};

// With a probability that is drawn from `factor` for each image. The two widths of the kernel are
// drawn from `sigma` once for the batch.
class RandomGaussianBlur : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
    check_interval("sigma", 0, 1, true, diagnostics);
    const std::vector<int64_t> sizes = integers_of(config_.arg("kernel_size"));
    for (const int64_t size : sizes) {
      if (sizes.size() > 2 || size < 1 || size % 2 == 0) {
        argument_error(diagnostics, "kernel_size", "is not one or two odd numbers")
            .help("write 3, or [3, 5]");
        return;
      }
    }
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const std::vector<int64_t> sizes = integers_of(config_.arg("kernel_size"));
    const ValueId columns = weights(context, sizes.front()), rows = weights(context, sizes.back());
    const ValueId kernel = b.cast(b.einsum("r,c->rc", {rows, columns}), b.dtype(x));
    const ValueId is_blurred = draw_chance(context, x, interval("factor", 0));
    return clamp_to(b, b.select(is_blurred, filtered(b, x, kernel), x), value_range());
  }

 private:
  // exp(-i^2 / 2 s^2) around the middle, of sum 1.
  ValueId weights(CallContext& context, int64_t size) const {
    Builder& b = context.builder;
    CallContext wide = context;
    wide.compute_dtype = at_least_float32(context.compute_dtype);
    const DrawRange range = interval("sigma", 0);
    const ValueId sigma =
        b.add(random_uniform(wide, {1}, seed(context), range.low, range.high), 1e-6);
    const ValueId place =
        b.sub(b.iota({size}, 0, wide.compute_dtype), static_cast<double>(size - 1) / 2);
    const ValueId weight = b.exp(b.mul(b.square(b.div(place, sigma)), -0.5));
    return b.div(weight, b.reduce_sum(weight, {0}, true));
  }
};

// Fills a rectangle, with a probability that is drawn from `factor` for each image. Each side is
// the root of a number of `scale`, as a part of the image's.
class RandomErasing : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
    if (!value_or_null(config_, "scale").is_null()) {
      check_interval("scale", 0, 1, true, diagnostics);
    }
  }
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const ConfigValue& fill = value_or_null(config_, "fill_value");
    if (fill.is_list() && static_cast<int64_t>(numbers_of(fill).size()) != input[3]) {
      argument_error(diagnostics, "fill_value",
                     fmt::format("has {} numbers, but the images have {} channels",
                                 numbers_of(fill).size(), input[3]))
          .help("write one number, or one for each channel");
    }
    return AugmentationLayer::build_last(input, diagnostics);
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const ValueId inside = b.binary("logical_and", within(context, x, 2), within(context, x, 1));
    const ValueId is_erased =
        b.binary("logical_and", inside, draw_chance(context, x, interval("factor", 0)));
    return b.select(is_erased, clamp_to(b, fill(context, x), value_range()), x);
  }

 private:
  DrawRange scale() const {
    return value_or_null(config_, "scale").is_null() ? DrawRange{0.02, 0.33} : interval("scale", 0);
  }
  // bool, of the sizes of x along dimension 0 and `axis`: whether a place is in the rectangle.
  ValueId within(CallContext& context, ValueId x, int axis) const {
    Builder& b = context.builder;
    const ValueId part = b.sqrt(draw_in_float32(context, x, scale()));
    const auto length = static_cast<double>(b.shape(x)[static_cast<size_t>(axis)]);
    const ValueId size = b.mul(part, length);
    const ValueId start = b.mul(draw_in_float32(context, x, {0, 1}), b.add(b.neg(size), length));
    Shape line = {1, 1, 1, 1};
    line[static_cast<size_t>(axis)] = static_cast<int64_t>(length);
    const ValueId place = b.iota(line, axis, b.dtype(size));
    return b.binary("logical_and", b.binary("ge", place, start),
                    b.binary("lt", place, b.add(start, size)));
  }
  // null: normal numbers times the largest value, as in Keras.
  ValueId fill(CallContext& context, ValueId x) const {
    Builder& b = context.builder;
    const ConfigValue& value = value_or_null(config_, "fill_value");
    if (value.is_null()) {
      return b.mul(random_normal(context, b.shape(x), seed(context)), value_range().high);
    }
    const std::vector<double> numbers = numbers_of(value);
    return numbers.size() == 1 ? b.constant(numbers[0], b.dtype(x))
                               : vector_of(b, numbers, b.dtype(x));
  }
};

}  // namespace

std::vector<LayerEntry> filter_layers() {
  return {{"RandomSharpness", make_as<RandomSharpness>},
          {"RandomGaussianBlur", make_as<RandomGaussianBlur>},
          {"RandomErasing", make_as<RandomErasing>}};
}

}  // namespace meshtrain
