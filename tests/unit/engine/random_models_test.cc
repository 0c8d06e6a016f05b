// Random models of every layer but Embedding: on random meshes, under random layouts, pins and ZeRO
// levels, every intermediate tensor, gradient, moving average and updated weight equals one
// device's.
#include "support/random_models.h"

#include <doctest/doctest.h>

#include <set>

#include "config/catalogue.h"
#include "config/cells.h"
#include "support/sampled.h"

using namespace meshtrain;
using namespace meshtrain::testing;

namespace {

constexpr size_t kCases = 480, kStride = 4;

}  // namespace

TEST_CASE("random models: every tensor of every sharded step equals one device's") {
  for (const size_t seed : test::sampled_seeds(kCases, kStride)) {
    CAPTURE(seed);
    Random random(seed * 104729 + 3);
    const LayerStep step = random_layer_step(random);
    CAPTURE(step.yaml);
    const Layout layout = random_layout(random, step.step);
    const Layout single = one_device(step.step);
    const uint64_t data_seed = seed + 777;
    compare_tensors(run_layout(step.step, layout, data_seed, true),
                    run_layout(step.step, single, data_seed, true));
    compare_tensors(run_layout(step.step, layout, data_seed, false),
                    run_layout(step.step, single, data_seed, false));
  }
}

TEST_CASE("random models: every layer of the catalogue is in one of the cases") {
  // Embedding takes integers (random_steps.cc looks up rows); Repeat is gone once a config is read;
  // cells are parts of RNN.
  std::set<std::string> seen = {"Embedding", "TokenAndPositionEmbedding", "Input", "Repeat"};
  for (size_t seed = 0; seed < kCases; ++seed) {
    Random random(seed * 104729 + 3);
    const LayerStep step = random_layer_step(random);
    seen.insert(step.class_names.begin(), step.class_names.end());
  }
  for (const std::string& name : class_names(Category::kLayer)) {
    CHECK_MESSAGE((seen.contains(name) || is_cell_class(name)), "no case has a ", name);
  }
}
