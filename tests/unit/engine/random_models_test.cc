// Random models of every layer that has a kernel of its own, or moves data between samples,
// positions or channels: on random meshes, under random layouts, pins and ZeRO levels, every
// intermediate tensor, gradient, moving average and updated weight equals one device's.
#include "support/random_models.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

using namespace meshtrain;
using namespace meshtrain::testing;

namespace {

constexpr int kCases = 400;

}  // namespace

TEST_CASE("random models: every tensor of every sharded step equals one device's") {
  const char* asked = std::getenv("MESHTRAIN_RANDOM_CASES");
  const int cases = asked != nullptr ? std::atoi(asked) : kCases;
  std::set<std::string> seen;
  for (int seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<uint64_t>(seed) * 104729 + 3);
    const LayerStep step = random_layer_step(random);
    CAPTURE(step.yaml);
    seen.insert(step.class_names.begin(), step.class_names.end());
    const Layout layout = random_layout(random, step.step);
    const Layout single = one_device(step.step);
    const uint64_t data_seed = static_cast<uint64_t>(seed) + 777;
    compare_tensors(run_layout(step.step, layout, data_seed, true),
                    run_layout(step.step, single, data_seed, true));
    compare_tensors(run_layout(step.step, layout, data_seed, false),
                    run_layout(step.step, single, data_seed, false));
  }
  if (cases >= kCases) {
    for (const std::string& class_name : random_layer_classes()) {
      CHECK_MESSAGE(seen.contains(class_name), "no case has a ", class_name);
    }
  }
}
