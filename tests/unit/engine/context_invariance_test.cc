// Context parallelism of language models with dropout, computed again or kept, with their steps in
// order or in the head-tail order: losses and weights are those of one device, in float64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "data/step_order.h"
#include "engine/engine.h"
#include "support/engine_case.h"
#include "support/language_models.h"
#include "support/layout_case.h"

using namespace meshtrain;
using namespace meshtrain::test;
using meshtrain::testing::compare_tensors;
using meshtrain::testing::Tensors;

namespace {

constexpr int64_t kContextSteps = 5;
constexpr double kContextBound = 1e-9;

const std::pair<const char*, LanguageModel> kContextModels[] = {
    {"gpt", {}},
    {"gpt with padding, untied", {.ties_head = false, .masks_zero = true}},
    {"llama", {.family = LanguageFamily::kLlama}},
    {"llama with padding, untied",
     {.family = LanguageFamily::kLlama, .ties_head = false, .masks_zero = true, .key_heads = 1}},
};

struct ContextRun {
  std::vector<double> losses;
  Tensors weights;
};

// `mesh`: "" is one device. `shards`: of the head-tail order.
ContextRun train_context(const LanguageModel& model, int64_t shards, const std::string& mesh) {
  const Config config = config_from(
      "dtype_policy: float64\nseed: 21\n" + yaml_of(model, "{Adam: {learning_rate: 0.01}}") +
      fmt::format("data: {{head_tail: {}}}\n", shards) +
      (mesh.empty() ? ""
                    : "distribution:\n  layout_map: context\n  device_mesh: {axis_names: [data, "
                      "seq], shape: " +
                          mesh + "}\n"));
  Dataset data = random_sequences(16, 9);
  order_steps(data, config.data.head_tail, {});
  Engine engine(config, data_spec(data), {.num_workers = 2});
  ContextRun out;
  for (int64_t step = 0; step < kContextSteps; ++step) {
    engine.train_step({&data, rows_of_step(step, 8, data.num_samples)});
    out.losses.push_back(engine.last_loss());
  }
  for (const std::string& path : engine.weight_paths())
    out.weights[path] = engine.read_variable(path);
  return out;
}

double largest_gap(const ContextRun& run, const ContextRun& expected) {
  double gap = 0;
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    gap =
        std::max(gap, std::abs(run.losses[i] - expected.losses[i]) / std::abs(expected.losses[i]));
  }
  return gap;
}

void check_equal(const ContextRun& run, const ContextRun& expected) {
  CHECK(largest_gap(run, expected) <= kContextBound);
  compare_tensors(run.weights, expected.weights, kContextBound);
}

}  // namespace

TEST_CASE("context meshes: dropout, remat and the head-tail order have one device's numbers") {
  const std::vector<std::pair<int64_t, std::vector<const char*>>> meshes_of_orders = {
      {1, {"[1, 2]", "[2, 2]", "[2, 4]", "[1, 8]"}},
      {2, {"[1, 2]", "[2, 2]", "[4, 2]"}},
      {4, {"[1, 4]", "[2, 2]", "[2, 4]"}},
  };
  for (const auto& [name, plain] : kContextModels) {
    for (const auto& [shards, meshes] : meshes_of_orders) {
      CAPTURE(name);
      CAPTURE(shards);
      const ContextRun one = train_context(plain, shards, "");
      LanguageModel without_dropout = plain;
      without_dropout.dropout = 0;
      CHECK(largest_gap(train_context(without_dropout, shards, ""), one) > 1e-3);
      for (const char* remat : {"none", "block", "dots"}) {
        LanguageModel model = plain;
        model.remat = remat;
        for (const char* mesh : meshes) {
          CAPTURE(remat);
          CAPTURE(mesh);
          check_equal(train_context(model, shards, mesh), one);
        }
      }
    }
  }
}

TEST_CASE("context meshes: without dropout the head-tail order changes nothing") {
  for (const auto& [name, model] : kContextModels) {
    LanguageModel without_dropout = model;
    without_dropout.dropout = 0;
    const ContextRun in_order = train_context(without_dropout, 1, "");
    for (const auto& [shards, mesh] :
         {std::pair<int64_t, const char*>{2, "[1, 2]"}, {4, "[1, 4]"}, {4, "[2, 4]"}}) {
      for (const char* remat : {"none", "block", "dots"}) {
        CAPTURE(name);
        CAPTURE(mesh);
        CAPTURE(remat);
        without_dropout.remat = remat;
        check_equal(train_context(without_dropout, shards, mesh), in_order);
      }
    }
  }
}
