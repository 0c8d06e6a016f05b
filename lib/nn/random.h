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
// bool: true with probability `probability`.
ValueId random_chance(CallContext& context, Shape shape, int64_t seed, double probability);

}  // namespace meshtrain
