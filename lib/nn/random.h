// Random numbers in the graph: functions of (seed, path, step, global element), the same on every
// mesh.
#pragma once

#include "nn/model.h"

namespace meshtrain {

// Uniform in [low, high), of the layer's compute dtype.
ValueId random_uniform(CallContext& context, Shape shape, int64_t seed, double low, double high);
// Standard normal, by the method of G. E. P. Box and M. E. Muller, "A note on the generation of
// random normal deviates", 1958.
ValueId random_normal(CallContext& context, Shape shape, int64_t seed);
// The logarithm of gamma-distributed numbers of rate 1, in at least float32. `alpha`, above 0, is
// of that type and broadcasts to `shape`. By the method of G. Marsaglia and W. W. Tsang, "A simple
// method for generating gamma variables", 2000, with eight candidates of each number.
ValueId random_log_gamma(CallContext& context, const Shape& shape, int64_t seed, ValueId alpha);
// Beta-distributed numbers with both parameters `alpha`, as above.
ValueId random_beta(CallContext& context, const Shape& shape, int64_t seed, ValueId alpha);
// int32 (size,): the numbers below `size` in a random order, all orders alike.
ValueId random_permutation(CallContext& context, int64_t size, int64_t seed);
// bool: true with probability `probability`.
ValueId random_chance(CallContext& context, Shape shape, int64_t seed, double probability);

}  // namespace meshtrain
