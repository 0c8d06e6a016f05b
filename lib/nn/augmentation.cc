// RandomFlip, RandomCrop, and what all random layers over images share.
#include "nn/augmentation.h"

#include <algorithm>
#include <cmath>

#include "nn/arguments.h"
#include "nn/random.h"
#include "nn/resizing.h"

namespace meshtrain {

Shape AugmentationLayer::build_last(const Shape& input, Diagnostics& diagnostics) {
  const ConfigValue& range = value_or_null(config_, "value_range");
  const std::vector<double> ends = range.is_null() ? std::vector<double>{} : numbers_of(range);
  if (!range.is_null() && (ends.size() != 2 || ends[0] == ends[1])) {
    argument_error(diagnostics, "value_range",
                   ends.size() != 2 ? "is no list of two numbers" : "has no width")
        .help("write [smallest, largest], such as [0, 1]");
  }
  check_arguments(diagnostics);
  return input;
}

ValueId AugmentationLayer::call_last(CallContext& context, ValueId x) {
  return context.training ? changed(context, x) : x;
}

DrawRange AugmentationLayer::interval(std::string_view argument, double low) const {
  const ConfigValue& value = config_.arg(argument);
  const std::vector<double> given = numbers_of(value);
  if (!value.is_list()) {
    return {std::max(-std::abs(given[0]), low), std::abs(given[0])};
  }
  return {std::min(given[0], given[1]), std::max(given[0], given[1])};
}

void AugmentationLayer::check_interval(std::string_view argument, double low, double high,
                                       bool overlap, Diagnostics& diagnostics) const {
  const std::vector<double> given = numbers_of(config_.arg(argument));
  if (config_.arg(argument).is_list() && given.size() != 2) {
    argument_error(diagnostics, argument, fmt::format("has {} numbers", given.size()))
        .help("write one number, or [lowest, highest]");
    return;
  }
  const bool fits = overlap && given.size() == 2
                        ? given[0] <= high && given[1] >= low
                        : std::all_of(given.begin(), given.end(),
                                      [&](double v) { return v >= low && v <= high; });
  if (!fits) {
    argument_error(diagnostics, argument, fmt::format("is outside of [{}, {}]", low, high))
        .help(fmt::format("write numbers from {} to {}", low, high));
  }
}

ValueId AugmentationLayer::draw(CallContext& context, ValueId x, DrawRange range) const {
  return random_uniform(context, {context.builder.shape(x)[0], 1, 1, 1}, seed(context), range.low,
                        range.high);
}

ValueId AugmentationLayer::draw_in_float32(CallContext& context, ValueId x, DrawRange range) const {
  CallContext wide = context;
  wide.compute_dtype = at_least_float32(context.compute_dtype);
  return draw(wide, x, range);
}

ValueId AugmentationLayer::draw_chance(CallContext& context, ValueId x, DrawRange range) const {
  const ValueId probability = draw_in_float32(context, x, range);
  return context.builder.binary("lt", draw_in_float32(context, x, {0, 1}), probability);
}

PixelRange value_range_of(const ConfigObject& layer) {
  const ConfigValue& range = value_or_null(layer, "value_range");
  if (range.is_null()) {
    return kBytes;
  }
  const std::vector<double> ends = numbers_of(range);
  return {std::min(ends[0], ends[1]), std::max(ends[0], ends[1])};
}

namespace {

// One draw decides for an image whether it is mirrored, along all axes of `mode` together.
class RandomFlip : public MovingLayer {
 public:
  using MovingLayer::MovingLayer;

  Move draw_move(CallContext& context, ValueId images) const override {
    Builder& b = context.builder;
    const ValueId flips = random_chance(context, {b.shape(images)[0], 1, 1, 1}, seed(context), 0.5);
    return [&b, flips, mode = config_.string("mode")](ValueId x, bool) {
      ValueId mirrored = x;
      if (mode != "vertical") {
        mirrored = b.reverse(mirrored, 2);
      }
      if (mode != "horizontal") {
        mirrored = b.reverse(mirrored, 1);
      }
      return b.select(flips, mirrored, x);
    };
  }
};

// A part of (height, width) at a random place of each image; the middle at inference. Images that
// are not larger in both directions are cropped in the middle to the aspect ratio and resized, as
// in Keras.
class RandomCrop : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics&) override {
    return {input[0], config_.integer("height"), config_.integer("width"), input[3]};
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    const Shape shape = b.shape(x);
    const int64_t height = config_.integer("height"), width = config_.integer("width");
    if (shape[1] < height || shape[2] < width || (shape[1] == height) != (shape[2] == width)) {
      return resize(b, crop_to_aspect_ratio(b, x, height, width), height, width, "bilinear", false);
    }
    if (shape[1] == height && shape[2] == width) {
      return x;
    }
    return context.training ? changed(context, x) : center_crop(b, x, height, width);
  }

  // Rows, then columns, picked by products with 0 and 1 that are made for each image.
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const Shape shape = b.shape(x);
    const ValueId rows = picks(context, x, shape[1], config_.integer("height"));
    const ValueId columns = picks(context, x, shape[2], config_.integer("width"));
    return b.einsum("nhqc,nph->npqc", {b.einsum("nhwc,nqw->nhqc", {x, columns}), rows});
  }

 private:
  // (N, size, input): 1 at input position start + i of row i, start drawn per image.
  ValueId picks(CallContext& context, ValueId x, int64_t input, int64_t size) const {
    Builder& b = context.builder;
    const int64_t batch = b.shape(x)[0];
    CallContext wide = context;  // 16 bits hold few whole numbers
    wide.compute_dtype = at_least_float32(context.compute_dtype);
    const DType dtype = wide.compute_dtype;
    const ValueId draw = random_uniform(wide, {batch, 1, 1}, seed(context), 0,
                                        static_cast<double>(input - size + 1));
    const ValueId start = b.minimum(b.unary("floor", draw), static_cast<double>(input - size));
    const Shape table = {batch, size, input};
    const ValueId place = b.add(b.iota(table, 1, dtype), start);
    return b.cast(b.binary("eq", place, b.iota(table, 2, dtype)), b.dtype(x));
  }
};

}  // namespace

std::vector<LayerEntry> augmentation_layers() {
  return {{"RandomFlip", make_as<RandomFlip>}, {"RandomCrop", make_as<RandomCrop>}};
}

}  // namespace meshtrain
