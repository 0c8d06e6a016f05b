// Random models on random meshes under random layouts, pins and ZeRO levels, in float64: every
// intermediate tensor, every gradient and every updated weight equals one device's.
#include <doctest/doctest.h>

#include "support/random_steps.h"
#include "support/sampled.h"

using namespace meshtrain;
using namespace meshtrain::testing;

namespace {

constexpr size_t kCases = 500, kStride = 4;

}  // namespace

TEST_CASE("random layouts: every tensor of every sharded step equals one device's") {
  for (const size_t seed : test::sampled_seeds(kCases, kStride)) {
    CAPTURE(seed);
    Random random(seed * 7919 + 1);
    const LayoutCase model = random_graph_step(random);
    const Layout layout = random_layout(random, model);
    const Layout single = one_device(model);
    const uint64_t data_seed = seed + 12345;
    compare_tensors(run_layout(model, layout, data_seed, true),
                    run_layout(model, single, data_seed, true));
    compare_tensors(run_layout(model, layout, data_seed, false),
                    run_layout(model, single, data_seed, false));
  }
}
