#include "nn/colors.h"

#include <limits>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

// Each (N, H, W, 1); hue in [0, 1].
struct Hsv {
  ValueId hue, saturation, value;
};

ValueId channel(Builder& b, ValueId x, int64_t index) {
  return b.slice(x, 3, index, index + 1);
}

Hsv to_hsv(Builder& b, ValueId x) {
  const double tiny = b.dtype(x) == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon();
  const ValueId zero = b.constant(0, b.dtype(x)), one = b.constant(1, b.dtype(x));
  x = b.select(b.binary("lt", b.unary("abs", x), b.constant(tiny, b.dtype(x))), zero, x);
  const ValueId red = channel(b, x, 0), green = channel(b, x, 1), blue = channel(b, x, 2);
  const ValueId value = b.maximum(b.maximum(red, green), blue);
  const ValueId range = b.sub(value, b.minimum(b.minimum(red, green), blue));
  const ValueId is_lit = b.binary("gt", value, zero), is_coloured = b.binary("gt", range, zero);
  const ValueId saturation = b.select(is_lit, b.div(range, b.select(is_lit, value, one)), zero);
  // A sixth of the circle for each pair of neighbouring primaries, from the largest channel.
  const ValueId sixth = b.div(one, b.mul(b.select(is_coloured, range, one), 6.0));
  const auto from = [&](ValueId u, ValueId v, double start) {
    return b.add(b.mul(sixth, b.sub(u, v)), start);
  };
  ValueId hue =
      b.select(b.binary("eq", value, green), from(blue, red, 2.0 / 6), from(red, green, 4.0 / 6));
  hue = b.select(b.binary("eq", value, red), from(green, blue, 0), hue);
  hue = b.select(b.binary("lt", hue, zero), b.add(hue, 1.0), hue);
  return {b.select(is_coloured, hue, zero), saturation, value};
}

ValueId to_rgb(Builder& b, const Hsv& hsv) {
  const ValueId turns = b.sub(hsv.hue, b.unary("floor", hsv.hue));
  const ValueId place = b.mul(turns, 6.0);
  // How much of a primary the hue has: 1 within a sixth of its place, 0 beyond two sixths.
  const auto part = [&](double centre, bool is_inside) {
    const ValueId distance = b.unary("abs", b.sub(place, centre));
    const ValueId ramp = is_inside ? b.sub(distance, 1.0) : b.add(b.neg(distance), 2.0);
    return b.clamp(ramp, 0, 1);
  };
  const ValueId grey = b.add(b.neg(hsv.saturation), 1.0);
  const auto primary = [&](ValueId p) {
    return b.mul(hsv.value, b.add(grey, b.mul(hsv.saturation, p)));
  };
  // Red lies at both ends of the circle, so it is measured from the opposite of it.
  return b.concat({primary(part(3, true)), primary(part(2, false)), primary(part(4, false))}, 3);
}

}  // namespace

ValueId rgb_to_hsv(Builder& b, ValueId x) {
  const Hsv hsv = to_hsv(b, x);
  return b.concat({hsv.hue, hsv.saturation, hsv.value}, 3);
}

ValueId hsv_to_rgb(Builder& b, ValueId x) {
  return to_rgb(b, {channel(b, x, 0), channel(b, x, 1), channel(b, x, 2)});
}

ValueId to_range(Builder& b, ValueId x, PixelRange from, PixelRange to) {
  if (from.low == to.low && from.high == to.high) {
    return x;
  }
  return b.add(b.mul(b.div(b.sub(x, from.low), from.high - from.low), to.high - to.low), to.low);
}

ValueId clamp_to(Builder& b, ValueId x, PixelRange range) {
  return b.clamp(x, range.low, range.high);
}

ValueId grayscale(Builder& b, ValueId x) {
  if (b.shape(x)[3] == 1) {
    return x;
  }
  const ValueId red = b.mul(channel(b, x, 0), 0.2989), green = b.mul(channel(b, x, 1), 0.5870);
  return b.add(b.add(red, green), b.mul(channel(b, x, 2), 0.1140));
}

ValueId with_brightness(Builder& b, ValueId x, ValueId f, PixelRange range) {
  return clamp_to(b, b.add(x, b.mul(f, range.high - range.low)), range);
}

ValueId with_contrast(Builder& b, ValueId x, ValueId f, PixelRange range) {
  const ValueId mean = b.reduce_mean(x, {1, 2}, true);
  return clamp_to(b, b.add(b.mul(b.sub(x, mean), f), mean), range);
}

ValueId with_saturation(Builder& b, ValueId x, ValueId f) {
  Hsv hsv = to_hsv(b, x);
  const ValueId times = b.div(f, b.add(b.neg(f), 1 + kEpsilon));
  hsv.saturation = b.clamp(b.mul(hsv.saturation, times), 0, 1);
  return to_rgb(b, hsv);
}

ValueId with_hue(Builder& b, ValueId x, ValueId shift, PixelRange range) {
  Hsv hsv = to_hsv(b, to_range(b, x, range, {0, 1}));
  hsv.hue = b.add(hsv.hue, shift);
  return to_range(b, b.clamp(to_rgb(b, hsv), 0, 1), {0, 1}, range);
}

}  // namespace meshtrain
