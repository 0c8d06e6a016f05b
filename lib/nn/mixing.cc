#include "nn/mixing.h"

#include <algorithm>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/graph_parts.h"
#include "nn/random.h"

namespace meshtrain {
namespace {

// The numbers of a batch's samples, `dtype` (N, 1, ...), shaped to go with x.
ValueId beside(Builder& b, ValueId numbers, ValueId x) {
  Shape shape(b.shape(x).size(), 1);
  shape[0] = b.shape(x)[0];
  return b.cast(b.reshape(numbers, shape), b.dtype(x));
}

// x w + (x of the partners) (1 - w).
ValueId blended(Builder& b, ValueId x, ValueId partners, ValueId weight) {
  const ValueId w = beside(b, weight, x);
  const ValueId other = b.gather_rows(x, partners);
  return b.add(b.mul(x, w), b.mul(other, b.add(b.neg(w), 1.0)));
}

ValueId floating(Builder& b, ValueId x, DType dtype) {
  return is_floating(b.dtype(x)) ? x : b.cast(x, dtype);
}

// [low, high] of the argument `factor`: f = [0, f].
std::pair<double, double> factor_of(const ConfigObject& mixing) {
  const std::vector<double> given = numbers_of(mixing.arg("factor"));
  return given.size() == 1 ? std::pair{0.0, given[0]}
                           : std::pair{std::min(given[0], given[1]), std::max(given[0], given[1])};
}

struct Cut {
  ValueId mask;    // bool (N, H, W, 1): where the partner's pixels are
  ValueId weight;  // (N, 1, 1, 1): the part of the image that stays
};

// A rectangle of each image, of sides of one share of the image's. Positions are no whole pixels.
Cut cut_of(CallContext& context, const ConfigObject& mixing, ValueId images, int64_t seed) {
  Builder& b = context.builder;
  const Shape shape = b.shape(images);
  const bool channels_first = string_or(mixing, "data_format", "") == "channels_first";
  const int rows = channels_first ? 2 : 1;
  const auto [low, high] = factor_of(mixing);
  const Shape each = {shape[0], 1, 1, 1};
  const ValueId alpha = b.add(random_uniform(context, {1, 1, 1, 1}, seed, low, high), 1e-6);
  const ValueId beta = random_beta(context, each, seed, alpha);
  const ValueId share = b.sqrt(b.add(b.neg(beta), 1.0));
  ValueId mask = kNone, area = kNone;
  for (const int axis : {rows, rows + 1}) {
    const auto size = static_cast<double>(shape[static_cast<size_t>(axis)]);
    const ValueId length = b.mul(share, size);
    const ValueId start =
        b.mul(random_uniform(context, each, seed, 0, 1), b.add(b.neg(length), size));
    const ValueId end = b.add(start, length);
    Shape line = {1, 1, 1, 1};
    line[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
    const ValueId place = b.iota(line, axis, b.dtype(start));
    const ValueId within =
        b.binary("logical_and", b.binary("ge", place, start), b.binary("lt", place, end));
    const ValueId part = b.div(b.sub(end, start), size);
    mask = mask == kNone ? within : b.binary("logical_and", mask, within);
    area = area == kNone ? part : b.mul(area, part);
  }
  return {mask, b.add(b.neg(area), 1.0)};
}

}  // namespace

void check_mixing(const ConfigObject& mixing, const std::vector<ValueType>& inputs,
                  const std::vector<ValueType>& targets, Diagnostics& diagnostics) {
  const auto report = [&](const std::string& what, const char* help) {
    diagnostics.error("E113", mixing.loc, fmt::format("`{}` {}", mixing.class_name, what))
        .help(help);
  };
  const bool cuts = mixing.class_name == "CutMix";
  for (const ValueType& input : inputs) {
    if (inputs.size() > 1) {
      report(fmt::format("mixes one input, but the data have {}", inputs.size()),
             "leave it out, or give the model one input");
      break;
    }
    if (!is_floating(input.dtype) && input.dtype != DType::kUInt8) {
      report(
          fmt::format("mixes pixels or other floats, but samples are {}", dtype_name(input.dtype)),
          "ids of words or classes cannot be mixed");
    } else if (cuts ? input.shape.size() != 3 : input.shape.empty()) {
      report(fmt::format("mixes {}, but samples are {}", cuts ? "images of three sizes" : "arrays",
                         shape_string(input.shape)),
             "`Reshape` before it makes images of other samples");
    }
  }
  for (const ValueType& target : targets) {
    if (!is_floating(target.dtype)) {
      report(
          fmt::format("mixes targets, and those here are class ids ({})", dtype_name(target.dtype)),
          kMixedTargetsHelp);
      break;
    }
    if (target.shape.size() > 1) {
      report(fmt::format("mixes one target or one row of numbers a sample, but targets are {}",
                         shape_string(target.shape)),
             "targets of this shape cannot be mixed by a single number");
      break;
    }
  }
}

void mix_batch(CallContext& context, const ConfigObject& mixing, std::vector<ValueId>& inputs,
               std::vector<ValueId>& targets) {
  Builder& b = context.builder;
  CallContext wide = context;
  wide.compute_dtype = at_least_float32(context.compute_dtype);
  const Builder::Scope scope = b.scope(to_snake_case(mixing.class_name));
  const int64_t seed = integer_or(mixing, "seed", context.seed);
  const int64_t batch = b.shape(inputs[0])[0];
  const ValueId partners = random_permutation(wide, batch, seed);
  ValueId weight = kNone;
  ValueId& images = inputs[0];
  images = floating(b, images, wide.compute_dtype);
  if (mixing.class_name == "CutMix") {
    const Cut cut = cut_of(wide, mixing, images, seed);
    images = b.select(cut.mask, b.gather_rows(images, partners), images);
    weight = cut.weight;
  } else {
    const ValueId alpha = b.constant(mixing.number("alpha"), wide.compute_dtype);
    weight = random_beta(wide, {batch}, seed, alpha);
    images = blended(b, images, partners, weight);
  }
  for (ValueId& target : targets) {
    target = blended(b, target, partners, weight);
  }
}

}  // namespace meshtrain
