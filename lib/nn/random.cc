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

ValueId random_log_gamma(CallContext& context, const Shape& shape, int64_t seed, ValueId alpha) {
  constexpr int64_t kCandidates = 8;  // each is refused with less than 5%
  Builder& b = context.builder;
  const Builder::Scope scope = b.scope("gamma");
  CallContext wide = context;
  wide.compute_dtype = at_least_float32(context.compute_dtype);
  Shape several = shape;
  several.push_back(kCandidates);
  const int last = static_cast<int>(shape.size());
  // Numbers of alpha + 1, whose candidates (1 + c x)^3 d are refused least often.
  const ValueId d = b.add(alpha, 2.0 / 3);
  const ValueId c = b.div(b.constant(1, wide.compute_dtype), b.sqrt(b.mul(d, 9.0)));
  const ValueId x = random_normal(wide, several, seed);
  const ValueId u = b.log(random_unit(wide, several, seed, 0.5));
  ValueId log_cube = kNone;
  for (int64_t k = kCandidates - 1; k >= 0; --k) {
    const auto candidate = [&](ValueId all) {
      return b.squeeze(b.slice(all, last, k, k + 1), last);
    };
    const ValueId normal = candidate(x);
    const ValueId root = b.add(b.mul(normal, c), 1.0);
    const ValueId log_v = b.mul(b.log(b.maximum(root, 1e-30)), 3.0);
    const ValueId most =
        b.add(b.mul(b.square(normal), 0.5), b.mul(d, b.add(b.sub(log_v, b.exp(log_v)), 1.0)));
    const ValueId is_accepted =
        b.binary("logical_and", b.binary("gt", root, b.constant(0, wide.compute_dtype)),
                 b.binary("lt", candidate(u), most));
    const ValueId next = log_cube == kNone ? b.constant(0, wide.compute_dtype, shape) : log_cube;
    log_cube = b.select(is_accepted, log_v, next);
  }
  const ValueId raised = b.add(log_cube, b.log(d));
  return b.add(raised, b.div(b.log(random_unit(wide, shape, seed, 0.5)), alpha));
}

ValueId random_beta(CallContext& context, const Shape& shape, int64_t seed, ValueId alpha) {
  Builder& b = context.builder;
  const ValueId first = random_log_gamma(context, shape, seed, alpha);
  return b.unary("sigmoid", b.sub(first, random_log_gamma(context, shape, seed, alpha)));
}

// The place of each number is its rank among random ones, of which the first of two equals is less.
ValueId random_permutation(CallContext& context, int64_t size, int64_t seed) {
  Builder& b = context.builder;
  const ValueId mine = b.random_bits({size, 1}, context.step, seed);
  const ValueId other = b.reshape(mine, {1, size});
  const ValueId is_before =
      b.binary("lt", b.iota({1, size}, 1, DType::kInt32), b.iota({size, 1}, 0, DType::kInt32));
  const ValueId is_less = b.binary("logical_or", b.binary("lt", other, mine),
                                   b.binary("logical_and", b.binary("eq", other, mine), is_before));
  return b.cast(b.reduce_sum(b.cast(is_less, DType::kFloat64), {1}), DType::kInt32);
}

ValueId random_chance(CallContext& context, Shape shape, int64_t seed, double probability) {
  Builder& b = context.builder;
  const ValueId bits = b.random_bits(std::move(shape), context.step, seed);
  const auto threshold = static_cast<double>(philox_threshold(probability));
  return b.binary("lt", bits, b.constant(threshold, DType::kUInt32));
}

}  // namespace meshtrain
