// How planning grows: with layers, not with devices. Processor times of one process, compared with
// each other; the bounds are far above what was measured (1.1, 10.7 and 4.2).
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>

#include "engine/make_plan.h"
#include "plan/hardware.h"
#include "support/engine_case.h"

using namespace meshtrain;

namespace {

std::string model(int layers, int64_t data, int64_t model_devices) {
  std::string yaml = "model:\n  layers:\n    - Input: {shape: [4096]}\n";
  for (int i = 0; i < layers; ++i) {
    yaml += fmt::format("    - Dense: {{units: 4096, activation: relu, name: d{}}}\n", i);
  }
  return yaml + fmt::format(R"(compile: {{optimizer: adam, loss: mse}}
fit: {{batch_size: 4096}}
distribution:
  zero: 3
  device_mesh: {{shape: [{}, {}], axis_names: [data, model]}}
  layout_map: {{".*/kernel": [null, model], ".*/bias": [model]}}
)",
                            data, model_devices);
}

// A GPT of these layers over data and tensor parallel devices, computed again in parts.
std::string gpt(int layers) {
  return fmt::format(R"(
blocks:
  Layer:
    inputs: [x]
    layers:
      - LayerNormalization: {{name: attention_norm, inputs: x}}
      - MultiHeadAttention: {{name: self_attention, num_heads: 16, key_dim: 64, dropout: 0.1,
          call: {{use_causal_mask: true}}}}
      - Add: {{name: middle, inputs: [x, self_attention]}}
      - LayerNormalization: {{name: feedforward_norm}}
      - Dense: {{name: feedforward_intermediate_dense, units: 4096, activation: gelu}}
      - Dense: {{name: feedforward_output_dense, units: 1024}}
      - Dropout: {{name: drop, rate: 0.1}}
      - Add: {{name: sum, inputs: [middle, drop]}}
model:
  layers:
    - Input: {{name: token_ids, shape: [1024], dtype: int32}}
    - ReversibleEmbedding: {{name: token_embedding, input_dim: 50304, output_dim: 1024}}
    - PositionEmbedding: {{name: position_embedding, sequence_length: 1024}}
    - Add: {{name: embeddings_add, inputs: [token_embedding, position_embedding]}}
    - Repeat: {{times: {}, name: "layer_{{i}}", block: Layer, remat: dots}}
    - LayerNormalization: {{name: layer_norm}}
    - Call: {{layer: token_embedding, name: logits, call: {{reverse: true}}}}
compile:
  loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}
  optimizer: {{AdamW: {{global_clipnorm: 1.0}}}}
fit: {{batch_size: 64}}
distribution:
  zero: 3
  reshard_after_forward: false
  device_mesh: {{shape: [8, 8], axis_names: [data, model]}}
  layout_map: {{preset: megatron, token_embedding/embeddings: [model, null]}}
)",
                     layers);
}

// From text to estimate, in milliseconds of the processor; the least of a few times.
double planning(const std::string& yaml, int rounds = 5) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const std::clock_t start = std::clock();
    const Config config = test::config_from(yaml);
    const Setup setup(config, nullptr);
    const PlanSummary plan = make_plan(setup, 0, true, find_hardware(known_hardware(), "H100"));
    CHECK(plan.estimate->step > 0);
    best = std::min(best, static_cast<double>(std::clock() - start) * 1000 / CLOCKS_PER_SEC);
  }
  return best;
}

}  // namespace

TEST_CASE("planning 4096 devices takes about as long as planning 8") {
  const double few = planning(model(30, 2, 4));
  for (const auto& [data, columns] : {std::pair<int64_t, int64_t>{64, 64}, {512, 8}}) {
    CAPTURE(data);
    CHECK(planning(model(30, data, columns)) <= 5 * few + 20);
  }
}

TEST_CASE("planning a GPT of 96 layers takes about eight times as long as one of 12") {
  // Measured: 9.6 to 10.7 times. Work that grows with the square of the layers would take 64 times
  // as long.
  CHECK(planning(gpt(96), 2) <= 16 * planning(gpt(12)) + 20);
}

TEST_CASE("every layer of a GPT adds the same nodes and collectives to its program") {
  const auto sizes = [](int layers) {
    const Config config = test::config_from(gpt(layers));
    const Setup setup(config, nullptr);
    const Graph graph = setup.compile(StepKind::kTrain, 64, /*bucket=*/false).graph;
    int64_t collectives = 0;
    for (const Node& node : graph.nodes)
      collectives += communicates(*node.op) ? 1 : 0;
    return std::pair(static_cast<int64_t>(graph.nodes.size()), collectives);
  };
  const auto [nodes_12, collectives_12] = sizes(12);
  const auto [nodes_24, collectives_24] = sizes(24);
  const auto [nodes_96, collectives_96] = sizes(96);
  // Each layer adds the same, since no weight is gathered again for the backward pass.
  CHECK(nodes_96 - nodes_24 == 6 * (nodes_24 - nodes_12));
  CHECK(collectives_96 - collectives_24 == 6 * (collectives_24 - collectives_12));
}

TEST_CASE("planning four times the layers takes about four times as long") {
  CHECK(planning(model(160, 64, 64)) <= 12 * planning(model(40, 64, 64)) + 20);
}
