// Random models on random meshes under random layouts, pins and ZeRO levels, in float64: every
// intermediate tensor, every gradient and every updated weight equals one device's.
#include <doctest/doctest.h>

#include <cstdlib>

#include "support/random_steps.h"

using namespace meshtrain;
using namespace meshtrain::testing;

namespace {

constexpr int kCases = 500;

}  // namespace

TEST_CASE("random layouts: every tensor of every sharded step equals one device's") {
  const char* asked = std::getenv("MESHTRAIN_RANDOM_CASES");
  const int cases = asked != nullptr ? std::atoi(asked) : kCases;
  for (int seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<uint64_t>(seed) * 7919 + 1);
    const LayoutCase model = random_graph_step(random);
    const Layout layout = random_layout(random, model);
    const Layout single = one_device(model);
    const uint64_t data_seed = static_cast<uint64_t>(seed) + 12345;
    compare_tensors(run_layout(model, layout, data_seed, true),
                    run_layout(model, single, data_seed, true));
    compare_tensors(run_layout(model, layout, data_seed, false),
                    run_layout(model, single, data_seed, false));
  }
}
