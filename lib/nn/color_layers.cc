// Layers that change the colours of images: RandomContrast, RandomHue, AutoContrast and their like.
// Source: Keras 3 layers/preprocessing/image_preprocessing.
#include "nn/arguments.h"
#include "nn/augmentation.h"

namespace meshtrain {
namespace {

// A layer of colours.
class ColorLayer : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (needs_colours() && input[3] != 3 && !(takes_grey() && input[3] == 1)) {
      input_error(diagnostics,
                  fmt::format("it takes images of {} channels", takes_grey() ? "1 or 3" : "3"))
          .help("red, green and blue: put it before layers that change the channels");
      return failed_shape();
    }
    return AugmentationLayer::build_last(input, diagnostics);
  }
  // Whether the channels must be red, green and blue, or one channel of grey.
  virtual bool needs_colours() const { return false; }
  virtual bool takes_grey() const { return false; }

  // x in at least float32, changed, and in its own type again: hues need more than 8 bits.
  template <class Change>
  static ValueId in_float32(Builder& b, ValueId x, const Change& change) {
    return b.cast(change(b.cast(x, at_least_float32(b.dtype(x)))), b.dtype(x));
  }
  ValueId brightened(CallContext& context, ValueId x, const char* factor) const {
    return with_brightness(context.builder, x, draw(context, x, interval(factor, -1)),
                           value_range());
  }
  ValueId contrasted(CallContext& context, ValueId x, const char* factor) const {
    const DrawRange range = interval(factor, 0);
    return with_contrast(context.builder, x, draw(context, x, {1 - range.low, 1 + range.high}),
                         value_range());
  }
  ValueId saturated(CallContext& context, ValueId x, const char* factor) const {
    Builder& b = context.builder;
    const ValueId f = draw_in_float32(context, x, interval(factor, 0));
    return in_float32(b, x, [&](ValueId wide) { return with_saturation(b, wide, f); });
  }
  // To either side: half of the circle at a factor of 1.
  ValueId turned(CallContext& context, ValueId x, const char* factor) const {
    Builder& b = context.builder;
    const ValueId half = b.mul(draw_in_float32(context, x, interval(factor, 0)), 0.5);
    const ValueId is_back = draw_chance(context, x, {0.5, 0.5});
    const ValueId shift = b.select(is_back, b.neg(half), half);
    return in_float32(b, x, [&](ValueId wide) { return with_hue(b, wide, shift, value_range()); });
  }
};

class RandomContrast : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    return contrasted(context, x, "factor");
  }
};

class RandomBrightness : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", -1, 1, true, diagnostics);
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    return brightened(context, x, "factor");
  }
};

// A layer whose argument `factor` is within [0, 1].
class FactorLayer : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 0, 1, true, diagnostics);
  }
};

class RandomSaturation : public FactorLayer {
 public:
  using FactorLayer::FactorLayer;

 protected:
  bool needs_colours() const override { return true; }
  ValueId changed(CallContext& context, ValueId x) const override {
    return saturated(context, x, "factor");
  }
};

class RandomHue : public FactorLayer {
 public:
  using FactorLayer::FactorLayer;

 protected:
  bool needs_colours() const override { return true; }
  ValueId changed(CallContext& context, ValueId x) const override {
    return turned(context, x, "factor");
  }
};

// Brightness, contrast, saturation and hue, in this order, each where its factor is given.
class RandomColorJitter : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  bool needs_colours() const override { return given("saturation_factor") || given("hue_factor"); }
  void check_arguments(Diagnostics& diagnostics) const override {
    for (const char* argument : {"contrast_factor", "saturation_factor", "hue_factor"}) {
      if (given(argument)) {
        check_interval(argument, 0, 1, true, diagnostics);
      }
    }
    if (given("brightness_factor")) {
      check_interval("brightness_factor", -1, 1, true, diagnostics);
    }
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    if (given("brightness_factor")) {
      x = brightened(context, x, "brightness_factor");
    }
    if (given("contrast_factor")) {
      x = contrasted(context, x, "contrast_factor");
    }
    if (given("saturation_factor")) {
      x = saturated(context, x, "saturation_factor");
    }
    return given("hue_factor") ? turned(context, x, "hue_factor") : x;
  }

 private:
  bool given(const char* argument) const { return !value_or_null(config_, argument).is_null(); }
};

// x + f (grey - x).
class RandomColorDegeneration : public FactorLayer {
 public:
  using FactorLayer::FactorLayer;

 protected:
  bool needs_colours() const override { return true; }
  bool takes_grey() const override { return true; }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const ValueId f = draw(context, x, interval("factor", 0));
    return clamp_to(b, b.add(x, b.mul(f, b.sub(grayscale(b, x), x))), value_range());
  }
};

// Grey, with probability `factor`.
class RandomGrayscale : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  bool needs_colours() const override { return true; }
  bool takes_grey() const override { return true; }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const double probability = config_.number("factor");
    const ValueId is_grey = draw_chance(context, x, {probability, probability});
    return b.select(is_grey, grayscale(b, x), x);
  }
};

// The negative, with a probability that is drawn from `factor` for each image.
class RandomInvert : public FactorLayer {
 public:
  using FactorLayer::FactorLayer;

 protected:
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const PixelRange range = value_range();
    const ValueId is_inverted = draw_chance(context, x, interval("factor", 0));
    return b.select(is_inverted, b.add(b.neg(x), range.low + range.high), x);
  }
};

// Keeps the highest 1 to 8 bits of the pixels as bytes. A list [a, b] draws from a to b - 1, as in
// Keras.
class RandomPosterization : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("factor", 1, 8, false, diagnostics);
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const DrawRange bits = interval("factor", 1);
    const double last = std::max(bits.low, bits.high - 1);
    const ValueId drawn =
        b.minimum(b.unary("floor", draw_in_float32(context, x, {bits.low, last + 1})), last);
    const DType dtype = b.dtype(drawn);
    // The step between two levels, by the number of bits.
    const ValueId step = b.gather_rows(vector_of(b, {256, 128, 64, 32, 16, 8, 4, 2, 1}, dtype),
                                       b.cast(drawn, DType::kInt32));
    const ValueId bytes = b.clamp(to_range(b, b.cast(x, dtype), value_range(), kBytes), 0, 255);
    const ValueId levels = b.mul(b.unary("floor", b.div(bytes, step)), step);
    return b.cast(to_range(b, levels, kBytes, value_range()), b.dtype(x));
  }
};

// Adds a number and inverts what is above a threshold, both parts of the range.
class Solarization : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  void check_arguments(Diagnostics& diagnostics) const override {
    check_interval("addition_factor", 0, 1, false, diagnostics);
    check_interval("threshold_factor", 0, 1, false, diagnostics);
  }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const auto draw_bytes = [&](const char* argument) {
      return b.mul(draw(context, x, interval(argument, 0)), 255.0);
    };
    const ValueId addition = draw_bytes("addition_factor");
    const ValueId threshold = draw_bytes("threshold_factor");
    const ValueId bytes = b.clamp(b.add(to_range(b, x, value_range(), kBytes), addition), 0, 255);
    const ValueId result =
        b.select(b.binary("lt", bytes, threshold), bytes, b.add(b.neg(bytes), 255.0));
    return to_range(b, result, kBytes, value_range());
  }
};

// Stretches each channel of an image over the whole range, also at inference.
class AutoContrast : public ColorLayer {
 public:
  using ColorLayer::ColorLayer;

 protected:
  ValueId call_last(CallContext& context, ValueId x) override { return changed(context, x); }
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const ValueId bytes = to_range(b, x, value_range(), kBytes);
    const ValueId low = b.reduce_min(bytes, {1, 2}, true);
    const ValueId width = b.sub(b.reduce_max(bytes, {1, 2}, true), low);
    const ValueId is_flat = b.binary("eq", width, b.constant(0, b.dtype(x)));
    // The share of the width lies in [0, 1] by itself. Keras' product and sum need a clamp, whose
    // derivative at the smallest and the largest value would follow from roundings, so from the
    // mesh.
    const ValueId share =
        b.div(b.sub(bytes, low), b.select(is_flat, b.constant(1, b.dtype(x)), width));
    const ValueId result = b.mul(share, b.constant(255, b.dtype(x)));
    return b.select(is_flat, x, to_range(b, result, kBytes, value_range()));
  }
};

}  // namespace

std::vector<LayerEntry> color_layers() {
  return {{"RandomContrast", make_as<RandomContrast>},
          {"RandomBrightness", make_as<RandomBrightness>},
          {"RandomSaturation", make_as<RandomSaturation>},
          {"RandomHue", make_as<RandomHue>},
          {"RandomColorJitter", make_as<RandomColorJitter>},
          {"RandomColorDegeneration", make_as<RandomColorDegeneration>},
          {"RandomGrayscale", make_as<RandomGrayscale>},
          {"RandomInvert", make_as<RandomInvert>},
          {"RandomPosterization", make_as<RandomPosterization>},
          {"Solarization", make_as<Solarization>},
          {"AutoContrast", make_as<AutoContrast>}};
}

}  // namespace meshtrain
