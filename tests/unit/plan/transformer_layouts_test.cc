// Layouts of transformers of L = 2 layers: collectives of a training step, each counted before
// bucketing, against what theory says; and context parallelism, which must not change a weight.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/step_order.h"
#include "support/splitmix.h"
#include "transformer_counts.h"

namespace meshtrain::testing {
namespace {

constexpr int64_t kSamples = 8, kSteps = 8, kIds = 32;

// Ids that `order` puts into other places of each sample.
HostTensor ids(uint64_t seed, const std::vector<int64_t>& order) {
  HostTensor out(DType::kInt32, {kSamples, kSteps});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t from = i / kSteps * kSteps + order[static_cast<size_t>(i % kSteps)];
    out.set(i, static_cast<double>(test::splitmix_below(seed, static_cast<uint64_t>(from), kIds)));
  }
  return out;
}

// The weights after three steps in float64 on texts whose places are in this order, with their
// places as `positions` where the model has such an input.
std::map<std::string, HostTensor> trained(const std::string& yaml,
                                          const std::vector<int64_t>& order) {
  const Config config = test::config_from(
      "dtype_policy: float64\nseed: 5\n" + yaml +
      "compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}\n"
      "fit: {batch_size: 8}\n");
  Dataset data = test::dataset_of(ids(1, order), ids(2, order));
  if (yaml.find("name: positions") != std::string::npos) {
    HostTensor positions(DType::kInt32, {kSamples, kSteps});
    for (int64_t i = 0; i < positions.size(); ++i) {
      positions.set(i, static_cast<double>(order[static_cast<size_t>(i % kSteps)]));
    }
    data.inputs.push_back({"positions", make_rows(std::move(positions))});
  }
  EngineOptions options;
  options.num_workers = 2;
  if (config.data.head_tail > 1) {
    order_steps(data, config.data.head_tail, {});
  }
  Engine engine(config, data_spec(data), options);
  const std::vector<int64_t> rows = test::rows_of_step(0, kSamples, kSamples);
  for (int step = 0; step < 3; ++step) {
    engine.train_step({&data, rows});
  }
  std::map<std::string, HostTensor> out;
  for (const std::string& path : engine.weight_paths()) {
    out.emplace(path, engine.read_variable(path));
  }
  return out;
}

void check_equal(const std::map<std::string, HostTensor>& found,
                 const std::map<std::string, HostTensor>& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [path, value] : expected) {
    CAPTURE(path);
    double worst = 0;
    for (int64_t i = 0; i < value.size(); ++i) {
      worst = std::max(worst, std::abs(found.at(path).at(i) - value.at(i)));
    }
    CHECK(worst <= 1e-9);
  }
}

const std::vector<int64_t> kInOrder = {0, 1, 2, 3, 4, 5, 6, 7};
// For two devices: the head and the tail on the first, so that both have the same causal work.
const std::vector<int64_t> kHeadTail = {0, 1, 6, 7, 2, 3, 4, 5};

constexpr const char* kPlaced = R"(
model:
  layers:
    - Input: {name: token_ids, shape: [8], dtype: int32}
    - Input: {name: positions, shape: [8], dtype: int32}
    - Embedding: {name: words, input_dim: 32, output_dim: 16, inputs: token_ids}
    - PositionEmbedding: {name: places, sequence_length: 8, inputs: {inputs: words, positions: positions}}
    - Add: {name: x, inputs: [words, places]}
    - GroupQueryAttention: {name: attention, head_dim: 4, num_query_heads: 4, num_key_value_heads: 2,
        rotary: {RotaryEmbedding: {}}, call: {use_causal_mask: true},
        inputs: {query: x, value: x, positions: positions}}
    - Add: {name: sum, inputs: [x, attention]}
    - Dense: {name: logits, units: 32}
)";
constexpr const char* kContext =
    "distribution: {device_mesh: {shape: [2, 2], axis_names: [data, seq]}, layout_map: context}\n";

}  // namespace

TEST_CASE("transformers, data parallel: a scalar, and each weight's gradient once") {
  const std::string mesh = "{shape: [4], axis_names: [data]}";
  CHECK(counts(kGpt, mesh, "") ==
        text({{"forward all_reduce data", 1}, {"backward all_reduce data", kGptWeights}}));
  CHECK(counts(kLlama, mesh, "") ==
        text({{"forward all_reduce data", 1}, {"backward all_reduce data", kLlamaWeights}}));
}

TEST_CASE("transformers, tensor parallel: two sums a layer in each direction") {
  const std::string mesh = "{shape: [2, 2], axis_names: [data, model]}";
  Counts expected = {{"forward all_reduce model", 2 * kLayers},
                     {"forward all_reduce data", 1},
                     {"backward all_reduce model", 2 * kLayers},
                     {"backward all_reduce data", kGptWeights}};
  CHECK(counts(kGpt, mesh, kTensorParallel) == text(expected));
  expected["backward all_reduce data"] = kLlamaWeights;
  CHECK(counts(kLlama, mesh, kLlamaParallel) == text(expected));
}

TEST_CASE("transformers, tensor and sequence parallel: a gather before and a scatter behind") {
  const std::string sequence_parallel = std::string(kTensorParallel) +
                                        "    .*/(middle|sum)/output: [data, model, null]\n"
                                        "    embeddings_add/output: [data, model, null]\n";
  // Of norms, biases of rows and the table of tokens each device has the gradient of its steps.
  constexpr int kWhole = (4 * kLayers + 2) + 2 * kLayers + 1;
  CHECK(counts(kGpt, "{shape: [2, 2], axis_names: [data, model]}", sequence_parallel) ==
        text({{"forward all_gather model", 2 * kLayers},
              {"forward reduce_scatter model", 2 * kLayers},
              {"forward all_reduce data model", 1},
              // One more: a device has the gradient of its rows of the table of positions, which
              // are other steps' rows on the other devices, and the table is whole on each.
              {"backward all_gather model", 2 * kLayers + 1},
              // The cotangents of query, key and value are added before they are scattered.
              {"backward reduce_scatter model", 2 * kLayers},
              {"backward all_reduce data model", kWhole},
              {"backward all_reduce data", kGptWeights - kWhole}}));
}

TEST_CASE("transformers, heads over two axes: fewer heads of keys than devices") {
  const std::string rules = R"(  layout_map:
    .*/query/kernel: [null, [kv, rep], null]
    .*/(key|value)/kernel: [null, kv, null]
    .*/attention_output/kernel: [[kv, rep], null, null]
    .*/feedforward_(gate|intermediate)_dense/kernel: [null, [kv, rep]]
    .*/feedforward_output_dense/kernel: [[kv, rep], null]
)";
  CHECK(counts(kLlama, "{shape: [2, 2, 2], axis_names: [data, kv, rep]}", rules) ==
        text({{"forward all_reduce kv rep", 2 * kLayers},
              {"forward all_reduce data", 1},
              {"backward all_reduce kv rep", kLayers},  // of the feed-forward layers
              // dk and dv, each a sum over the readers of a head of keys, and the cotangent
              // through the query, a sum over `kv` and `rep`. What is left of it is added to those
              // through key and value, which are sums over `kv`.
              {"backward all_reduce rep", 3 * kLayers},
              {"backward all_reduce kv", kLayers},
              {"backward all_reduce data", kLlamaWeights}}));
}

TEST_CASE("transformers, FSDP: each weight gathered once, each gradient scattered once") {
  CHECK(counts(kGpt, "{shape: [4], axis_names: [data]}", "  zero: 3\n") ==
        text({{"forward all_gather data", kGptWeights},
              {"forward all_reduce data", 1},
              {"backward reduce_scatter data", kGptWeights}}));
}

TEST_CASE("transformers, context parallel: keys and values gathered, their gradients scattered") {
  const std::string mesh = "{shape: [2, 2], axis_names: [data, seq]}",
                    rules = "  layout_map: context\n";
  const Counts both = {{"forward all_gather seq", 2 * kLayers},
                       {"forward all_reduce data seq", 1},
                       {"backward reduce_scatter seq", 2 * kLayers}};
  Counts gpt = both, llama = both;
  // Each device has the gradient of its rows of the table of positions.
  gpt["backward all_reduce data seq"] = kGptWeights - 1;
  gpt["backward all_reduce data"] = 1;
  gpt["backward all_gather seq"] = 1;
  llama["backward all_reduce data seq"] = kLlamaWeights;
  CHECK(counts(kGpt, mesh, rules) == text(gpt));
  CHECK(counts(kLlama, mesh, rules) == text(llama));
  // In head-tail order, too. Rows of the table of positions are looked up: their gradient is a sum.
  const std::string ordered = rules + "data: {head_tail: 2}\n";
  gpt.erase("backward all_gather seq");
  gpt["backward all_reduce seq"] = 1;
  CHECK(counts(kGpt, mesh, ordered) == text(gpt));
  CHECK(counts(kLlama, mesh, ordered) == text(llama));
}

TEST_CASE("context parallelism changes no weight, in order and with heads and tails together") {
  for (const char* model : {kGpt, kLlama}) {
    check_equal(trained(std::string(model) + kContext, kInOrder), trained(model, kInOrder));
  }
  const auto expected = trained(kPlaced, kInOrder);
  for (const char* model : {kGpt, kLlama, kPlaced}) {
    const auto plain = trained(model, kInOrder);
    for (const int shards : {1, 2, 4}) {
      CAPTURE(shards);
      const std::string over_seq = fmt::format(
          "data: {{head_tail: {0}}}\ndistribution: {{device_mesh: {{shape: [1, {0}], axis_names: "
          "[data, seq]}}, layout_map: context}}\n",
          shards);
      check_equal(trained(model + over_seq, kInOrder), plain);
    }
  }
  check_equal(trained(kPlaced, kHeadTail), expected);
  check_equal(trained(std::string(kPlaced) + kContext, kHeadTail), expected);
}

}  // namespace meshtrain::testing
