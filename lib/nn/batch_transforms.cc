#include "nn/batch_transforms.h"

#include <algorithm>

#include "base/text.h"
#include "config/source_classes.h"
#include "nn/arguments.h"
#include "nn/augmentation.h"
#include "nn/graph_parts.h"
#include "nn/mixing.h"

namespace meshtrain {
namespace {

bool is_channels_first(const ConfigObject& transform) {
  return string_or(transform, "data_format", "") == "channels_first";
}

// Where the rows of a sample's images or masks are; the columns are next.
size_t rows_axis(const Shape& sample, bool channels_first) {
  return channels_first && sample.size() == 3 ? 1 : 0;
}

// Whether a sample of this shape is an image or a mask of the size of `image`.
bool is_of_size(const Shape& sample, const Shape& image, bool channels_first) {
  if (sample.size() != 2 && sample.size() != 3) {
    return false;
  }
  const size_t rows = rows_axis(sample, channels_first), own = rows_axis(image, channels_first);
  return sample[rows] == image[own] && sample[rows + 1] == image[own + 1];
}

// The images that decide what moves: null where there are none.
const ValueType* find_images(const std::vector<ValueType>& inputs) {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [](const ValueType& input) { return input.shape.size() == 3; });
  return found == inputs.end() ? nullptr : &*found;
}

std::unique_ptr<Layer> moving_layer(const ConfigObject& transform, DType dtype) {
  LayerConfig config;
  config.object = transform;
  config.name.value = to_snake_case(transform.class_name);
  return make_layer(config, dtype);
}

// Moves x, an array (N, H, W), (N, H, W, C) or (N, C, H, W).
ValueId moved(Builder& b, const MovingLayer::Move& move, ValueId x, bool channels_first,
              DType compute_dtype) {
  const DType dtype = b.dtype(x);
  const bool is_flat = b.shape(x).size() == 3, is_turned = channels_first && !is_flat;
  ValueId images = is_floating(dtype) ? x : b.cast(x, compute_dtype);
  images = is_flat     ? b.expand_dims(images, 3)
           : is_turned ? b.transpose(images, {0, 2, 3, 1})
                       : images;
  images = move(images, !is_floating(dtype));
  images = is_flat ? b.squeeze(images, 3) : is_turned ? b.transpose(images, {0, 3, 1, 2}) : images;
  return b.cast(images, dtype);
}

void move_batch(CallContext& context, const ConfigObject& transform, BatchArrays<ValueId>& batch) {
  Builder& b = context.builder;
  CallContext wide = context;
  wide.compute_dtype = at_least_float32(context.compute_dtype);
  const Builder::Scope scope = b.scope(to_snake_case(transform.class_name));
  const std::unique_ptr<Layer> layer = moving_layer(transform, wide.compute_dtype);
  const bool channels_first = is_channels_first(transform);
  const auto sample_of = [&](ValueId x) { return without_first(b.shape(x)); };
  const auto first = std::find_if(batch.inputs.begin(), batch.inputs.end(),
                                  [&](ValueId x) { return sample_of(x).size() == 3; });
  const Shape image = sample_of(*first);
  ValueId images = *first;
  if (channels_first) {
    images = b.transpose(images, {0, 2, 3, 1});
  }
  const MovingLayer::Move move = dynamic_cast<MovingLayer&>(*layer).draw_move(wide, images);
  const auto apply = [&](ValueId& x, bool is_input) {
    if (!is_of_size(sample_of(x), image, channels_first)) {
      return;
    }
    if (is_input && !is_floating(b.dtype(x))) {
      x = b.cast(x, wide.compute_dtype);  // pixels, between which there are values
    }
    x = moved(b, move, x, channels_first, wide.compute_dtype);
  };
  for (ValueId& input : batch.inputs) {
    apply(input, true);
  }
  for (ValueId& target : batch.targets) {
    apply(target, false);
  }
  if (batch.sample_weight) {
    apply(*batch.sample_weight, false);
  }
}

}  // namespace

void check_batch_transform(const ConfigObject& transform, const BatchArrays<ValueType>& data,
                           Diagnostics& diagnostics) {
  if (is_mixing(transform)) {
    check_mixing(transform, data.inputs, data.targets, diagnostics);
    return;
  }
  const ValueType* const images = find_images(data.inputs);
  if (images == nullptr) {
    diagnostics
        .error("E113", transform.loc,
               fmt::format("`{}` moves pixels of images of three sizes, but samples are {}",
                           transform.class_name,
                           data.inputs.empty() ? "absent" : shape_string(data.inputs[0].shape)))
        .help("`Reshape` before it makes images of other samples");
    return;
  }
  const std::unique_ptr<Layer> layer = moving_layer(transform, DType::kFloat32);
  Shape shape = images->shape;
  shape.insert(shape.begin(), kUnknownDim);
  layer->build(std::vector<Shape>{shape}, diagnostics);
}

void transform_batch(CallContext& context, const ConfigObject& transform,
                     BatchArrays<ValueId>& batch) {
  if (is_mixing(transform)) {
    mix_batch(context, transform, batch.inputs, batch.targets);
  } else {
    move_batch(context, transform, batch);
  }
}

}  // namespace meshtrain
