#include "nn/random.h"

#include <numbers>

#include "base/philox.h"

namespace meshtrain {

namespace {

// (bits + offset) / 2^32 of fresh bits, in at least float32.
ValueId random_unit(CallContext& context, Shape shape, int64_t seed, double offset) {
  Builder& b = context.builder;
  const ValueId bits = b.random_bits(std::move(shape), context.step, seed);
  return b.mul(b.add(b.cast(bits, at_least_float32(context.compute_dtype)), offset), 0x1p-32);
}

}  // namespace

ValueId random_uniform(CallContext& context, Shape shape, int64_t seed, double low, double high) {
  Builder& b = context.builder;
  const ValueId unit = random_unit(context, std::move(shape), seed, 0);
  return b.cast(b.add(b.mul(unit, high - low), low), context.compute_dtype);
}

ValueId random_normal(CallContext& context, Shape shape, int64_t seed) {
  Builder& b = context.builder;
  // Above 0, so that its logarithm is finite.
  const ValueId radius = b.sqrt(b.mul(b.log(random_unit(context, shape, seed, 0.5)), -2.0));
  const ValueId angle = random_unit(context, std::move(shape), seed, 0);
  return b.cast(b.mul(radius, b.unary("cos", b.mul(angle, 2 * std::numbers::pi))),
                context.compute_dtype);
}

ValueId random_chance(CallContext& context, Shape shape, int64_t seed, double probability) {
  Builder& b = context.builder;
  const ValueId bits = b.random_bits(std::move(shape), context.step, seed);
  const auto threshold = static_cast<double>(philox_threshold(probability));
  return b.binary("lt", bits, b.constant(threshold, DType::kUInt32));
}

}  // namespace meshtrain
