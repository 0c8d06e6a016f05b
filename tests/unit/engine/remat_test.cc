// remat: the weights of a run are the same bits with and without it, the step needs less memory,
// and collectives are those that the policy says.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <set>

#include "engine/plan_search.h"
#include "engine/rank_plans.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kRows16 = 16, kSteps = 3;

struct RematModel {
  const char* name;
  const char* yaml;
  Shape input;
  bool is_ids;
};

// Attention with dropout, masks of steps.
const RematModel kGptBlocks = {"gpt",
                               R"(
blocks:
  Layer:
    inputs: [x]
    layers:
      - LayerNormalization: {name: n, inputs: x}
      - MultiHeadAttention: {name: attention, num_heads: 2, key_dim: 4, dropout: 0.2,
          call: {use_causal_mask: true}}
      - Add: {name: middle, inputs: [x, attention]}
      - Dense: {name: up, units: 32, activation: gelu}
      - Dense: {name: down, units: 8}
      - Dropout: {rate: 0.3}
      - Add: {name: out, inputs: [middle, dropout]}
model:
  layers:
    - Input: {shape: [6], dtype: int32}
    - Embedding: {input_dim: 11, output_dim: 8, mask_zero: true}
    - Repeat: {times: 3, name: "layer_{i}", block: Layer, remat: POLICY}
    - Dense: {units: 11}
compile: {optimizer: Adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
)",
                               {6},
                               true};
// Convolutions and statistics of the batch; the layers stand in the Repeat.
const RematModel kConvBlocks = {"convnet",
                                R"(
model:
  layers:
    - Input: {shape: [6, 6, 2]}
    - Conv2D: {filters: 4, kernel_size: 3, padding: same}
    - Repeat:
        times: 3
        name: "layer_{i}"
        remat: POLICY
        layers:
          - Conv2D: {name: up, filters: 8, kernel_size: 3, padding: same}
          - BatchNormalization
          - ReLU: {name: attention}
          - Conv2D: {name: middle, filters: 4, kernel_size: 1, kernel_regularizer: {L2: 0.01}}
          - MaxPooling2D: {pool_size: 2, strides: 1, padding: same}
    - Flatten
    - Dense: {units: 5}
compile: {optimizer: {SGD: {learning_rate: 0.1, momentum: 0.9}},
          loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
)",
                                {6, 6, 2},
                                false};

Dataset remat_data(const RematModel& model) {
  Shape shape = model.input;
  shape.insert(shape.begin(), kRows16);
  HostTensor x(model.is_ids ? DType::kInt32 : DType::kFloat32, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    x.set(i, model.is_ids ? static_cast<double>(splitmix_below(1, at, 11))
                          : static_cast<double>(splitmix_signed(1, at)));
  }
  HostTensor y(DType::kInt32, model.is_ids ? shape : Shape{kRows16});
  for (int64_t i = 0; i < y.size(); ++i)
    y.set(i, static_cast<double>(splitmix_below(2, static_cast<uint64_t>(i), 5)));
  return dataset_of(std::move(x), std::move(y));
}

std::string remat_yaml(const RematModel& model, const std::string& policy,
                       const std::string& more) {
  std::string yaml = model.yaml;
  yaml.replace(yaml.find("POLICY"), 6, policy);
  return yaml + "fit: {batch_size: 8}\n" + more;
}

struct TrainedValues {
  std::vector<std::string> paths;
  std::vector<HostTensor> values;
  int64_t arena = 0;
};

TrainedValues train(const RematModel& model, const std::string& policy, const std::string& more) {
  const Config config = config_from(remat_yaml(model, policy, more));
  const Dataset data = remat_data(model);
  Engine engine(config, data_spec(data), {.num_workers = 2});
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<int64_t> rows = rows_of_step(step, 8, kRows16);
    engine.train_step({&data, rows});
  }
  TrainedValues out;
  for (const Variable& variable : engine.setup().variables()) {
    out.paths.push_back(variable.path);
    out.values.push_back(engine.read_variable(variable.path));
  }
  out.arena = engine.train_program(8).arena_bytes;
  return out;
}

void check_same(const TrainedValues& a, const TrainedValues& b) {
  REQUIRE(a.paths == b.paths);
  for (size_t i = 0; i < a.paths.size(); ++i) {
    CAPTURE(a.paths[i]);
    CHECK(std::memcmp(a.values[i].bytes(), b.values[i].bytes(), a.values[i].num_bytes()) == 0);
  }
}

const std::vector<std::string> kPolicies = {"block", "dots", "[attention, middle]", "up"};

size_t num_collectives(const Config& config) {
  const Setup setup(config, nullptr);
  size_t count = 0;
  for (const Node& node : setup.compile(StepKind::kTrain, 8, /*bucket=*/false).graph.nodes)
    count += communicates(*node.op) ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("remat: the same bits on every mesh, with less memory") {
  for (const RematModel* model : {&kGptBlocks, &kConvBlocks}) {
    for (const char* dtype : {"float32", "float64"}) {
      for (const char* mesh : {"[1, 1]", "[2, 2]"}) {
        for (const int zero : {0, 3}) {
          if (zero == 3 && mesh[1] == '1')
            continue;  // nothing to split
          const std::string more = fmt::format(
              "dtype_policy: {}\ndistribution: {{zero: {}, device_mesh: "
              "{{shape: {}, axis_names: [batch, model]}}}}\n",
              dtype, zero, mesh);
          CAPTURE(model->name);
          CAPTURE(more);
          const TrainedValues none = train(*model, "none", more);
          for (const std::string& policy : kPolicies) {
            CAPTURE(policy);
            const TrainedValues again = train(*model, policy, more);
            check_same(none, again);
            CHECK(again.arena < none.arena);
          }
        }
      }
    }
  }
}

// Between kernels 16-bit values are rounded, within one they are not; remat changes what a kernel
// is.
TEST_CASE("remat: 16 bits differ by roundings") {
  const std::string more = "dtype_policy: mixed_bfloat16\n";
  for (const RematModel* model : {&kGptBlocks, &kConvBlocks}) {
    CAPTURE(model->name);
    const TrainedValues none = train(*model, "none", more), again = train(*model, "block", more);
    CHECK(again.arena < none.arena);
    for (size_t i = 0; i < none.paths.size(); ++i) {
      CAPTURE(none.paths[i]);
      for (int64_t k = 0; k < none.values[i].size(); ++k)
        CHECK(again.values[i].at(k) == doctest::Approx(none.values[i].at(k)).epsilon(0.05));
    }
  }
}

TEST_CASE("remat: collectives of a layer that is split over a model axis") {
  const auto count = [](const std::string& policy) {
    return num_collectives(config_from(remat_yaml(kGptBlocks, policy, R"(
distribution:
  type: ModelParallel
  device_mesh: {shape: [1, 2], axis_names: [batch, model]}
  layout_map:
    .*/attention/(query|key|value)/kernel: [null, model, null]
    .*/attention/attention_output/kernel: [model, null, null]
    .*/up/kernel: [null, model]
    .*/up/bias: [model]
    .*/down/kernel: [model, null]
)")));
  };
  const size_t none = count("none");
  CHECK(count("dots") == none);
  CHECK(count("block") == none + 3);  // the sum behind attention, once for each of three layers
}

TEST_CASE("remat of model: layers by name and pattern, and beside a Repeat") {
  const auto regions = [](const std::string& model) {
    const Config config = config_from("model:\n" + model + "compile: {loss: mse}\n");
    std::vector<std::string> out;
    for (const ModelConfig::Remat& remat : config.model.remat)
      out.push_back(remat.prefix + (remat.keeps_products ? " dots" : ""));
    return out;
  };
  using Names = std::vector<std::string>;
  const std::string layers = R"(
  layers:
    - Input: {shape: [4]}
    - Dense: {name: a, units: 4}
    - Dense: {name: b_0, units: 4}
    - Repeat: {times: 2, name: "r_{i}", layers: [{Dense: {name: d, units: 4}}], remat: block}
    - Dense: {name: c, units: 1}
)";
  CHECK(regions(layers) == Names{"r_0", "r_1"});
  CHECK(regions(layers + "  remat: {r_1: none, 'b_.': dots}\n") == Names{"b_0 dots", "r_0"});
  CHECK(regions(layers + "  remat: {'r_.*': dots}\n") == Names{"r_0", "r_1"});  // names come first
  CHECK(regions(layers + "  remat: {r_0: [d]}\n") == Names{"r_0", "r_1"});
}

namespace {

LoadOptions options_from(std::string yaml) {
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"case.yaml", std::move(yaml)});
  options.require_data = false;
  return options;
}

// Attention with two heads of keys, and a feed-forward part, `times` times.
std::string two_heads_yaml(const std::string& times, const std::string& distribution) {
  return "distribution: {" + distribution + R"(}
model:
  layers:
    - Input: {shape: [8, 64]}
    - Repeat: {times: )" +
         times + R"(, name: "l{i}", layers: [
        {GroupQueryAttention: {name: a, head_dim: 8, num_query_heads: 8, num_key_value_heads: 2}},
        {Dense: {name: up, units: 128}}, {Dense: {name: down, units: 64}}]}
    - Dense: {name: out, units: 4}
compile: {loss: mse}
fit: {batch_size: 16}
)";
}

}  // namespace

TEST_CASE("a preset's rules are those for each mesh that is ranked") {
  const PlanRanking ranking = rank_meshes(
      options_from(two_heads_yaml("1",
                                  "device_mesh: {shape: [4, 2], axis_names: [data, model], "
                                  "devices: 8xH100}, layout_map: megatron")),
      0);
  std::set<std::vector<int64_t>> shapes;
  for (const RankedPlan& plan : ranking.plans) {
    CHECK_MESSAGE(plan.score.problem.empty(), plan.score.problem);
    shapes.insert(plan.shape);
  }
  CHECK(shapes.size() == 4);
}

TEST_CASE(
    "a suggestion for many equal layers has their score, and none is slower than the preset") {
  const std::string mesh =
      "device_mesh: {shape: [2, 4], axis_names: [data, model], devices: 8xH100}";
  const std::vector<int64_t> shape = {2, 4};
  const SuggestedLayout found =
      suggest_layouts(options_from(two_heads_yaml("12", mesh)), shape, 0).front();
  const auto score_of = [](const std::string& distribution) {
    const Config config = load_config(options_from(two_heads_yaml("12", distribution)));
    return PlanSearch(config, 0).score(config);
  };
  std::string rules;
  for (const SuggestedRule& rule : found.rules)
    rules += (rules.empty() ? "" : ", ") + ("'" + rule.key + "': " + rule.layout);
  const PlanScore pasted = score_of(fmt::format(
      "type: ModelParallel, zero: {}, layout_map: {{{}}}, {}", found.zero, rules, mesh));
  CHECK(found.score.seconds == doctest::Approx(pasted.seconds));
  CHECK(found.score.memory == pasted.memory);
  CHECK(found.score.seconds <= score_of(mesh + ", layout_map: megatron").seconds * 1.0001);
}

TEST_CASE("ranked plans have each way to compute again: less memory, more time") {
  const LoadOptions options = options_from(remat_yaml(kGptBlocks, "dots", R"(
distribution: {device_mesh: {shape: [2, 1], axis_names: [batch, model], devices: 2xH100}}
)"));
  std::map<std::string, PlanScore> found;
  for (const RankedPlan& plan : rank_meshes(options, 0).plans) {
    if (plan.shape == std::vector<int64_t>{2, 1} && plan.zero == 0)
      found[plan.remat] = plan.score;
  }
  REQUIRE(found.size() == 3);
  CHECK(found["none"].memory > found["dots"].memory);
  CHECK(found["dots"].memory > found["block"].memory);
  CHECK(found["block"].seconds > found["none"].seconds);
}

TEST_CASE("layout presets are the rules that one writes by hand") {
  const auto rules_of = [](const std::string& layers, const std::string& distribution) {
    const Config config = config_from(
        "distribution: {device_mesh: {shape: [1, 2], axis_names: "
        "[data, tp]}, " +
        distribution + "}\nmodel:\n  layers:\n" + layers + "compile: {loss: mse}\n");
    std::vector<std::string> rules;
    for (const LayoutRule& rule : config.distribution.layout_map)
      rules.push_back(rule.key);
    rules.push_back(fmt::format("zero {}", config.distribution.zero.value));
    const Setup setup(config, nullptr);  // every rule matches
    return rules;
  };
  using Rules = std::vector<std::string>;
  const std::string layers = R"(
    - Input: {shape: [6, 8]}
    - TransformerEncoder: {intermediate_dim: 16, num_heads: 2}
    - Repeat: {times: 2, name: "layer_{i}", layers: [
        {Dense: {name: up, units: 32}}, {Dense: {name: down, units: 8, use_bias: false}},
        {GroupQueryAttention: {name: a, head_dim: 4, num_query_heads: 4, num_key_value_heads: 2,
          use_bias: false}}]}
    - Dense: {name: out, units: 1}
)";
  const Rules megatron = {
      R"(transformer_encoder(_\d+)?/self_attention_layer/(query|key|value)/kernel)",
      R"(transformer_encoder(_\d+)?/self_attention_layer/(query|key|value)/bias)",
      R"(transformer_encoder(_\d+)?/self_attention_layer/attention_output/kernel)",
      R"(transformer_encoder(_\d+)?/feedforward_intermediate_dense/kernel)",
      R"(transformer_encoder(_\d+)?/feedforward_intermediate_dense/bias)",
      R"(transformer_encoder(_\d+)?/feedforward_output_dense/kernel)",
      R"(layer_\d+/up/kernel)",
      R"(layer_\d+/up/bias)",
      R"(layer_\d+/down/kernel)",
      R"(layer_\d+/a/(query|key|value)/kernel)",
      R"(layer_\d+/a/attention_output/kernel)"};
  Rules expected = megatron;
  expected.emplace_back("zero 0");
  CHECK(rules_of(layers, "layout_map: megatron") == expected);
  expected.back() = "zero 3";
  CHECK(rules_of(layers, "layout_map: megatron_fsdp") == expected);
  CHECK(rules_of(layers, "layout_map: fsdp") == Rules{"zero 3"});
  CHECK(rules_of(layers, "layout_map: fsdp, zero: 3") == Rules{"zero 3"});
  expected.back() = "zero 0";
  expected.insert(expected.begin(), "out/kernel");
  CHECK(rules_of(layers, "layout_map: {out/kernel: [tp, null], preset: megatron}") == expected);
}

TEST_CASE("presets replicate heads of keys that the axis does not divide, and own rules win") {
  const auto rules_of = [](const std::string& map, const std::string& mesh) {
    const Config config = config_from("distribution: {device_mesh: {shape: " + mesh +
                                      ", axis_names: [data, tp]}, layout_map: " + map + R"(}
model:
  layers:
    - Input: {shape: [6, 8]}
    - Repeat: {times: 2, name: "layer_{i}", layers: [
        {GroupQueryAttention: {name: a, head_dim: 4, num_query_heads: 4, num_key_value_heads: 2,
          use_bias: false}}]}
    - Dense: {name: out, units: 1}
compile: {loss: mse}
)");
    const Setup setup(config, nullptr);  // every rule matches, and none meets another
    std::vector<std::string> rules;
    for (const LayoutRule& rule : config.distribution.layout_map)
      rules.push_back(rule.key + " " + rule.layout.to_string());
    return rules;
  };
  using Rules = std::vector<std::string>;
  const std::string output = R"(layer_\d+/a/attention_output/kernel [tp, null, null])";
  CHECK(rules_of("megatron", "[1, 2]") ==
        Rules{R"(layer_\d+/a/(query|key|value)/kernel [null, tp, null])", output});
  CHECK(rules_of("megatron", "[1, 4]") ==
        Rules{R"(layer_\d+/a/query/kernel [null, tp, null])",
              R"(layer_\d+/a/(key|value)/kernel [null, null, null])", output});
  CHECK(rules_of("{preset: megatron, '.*/a/(key|value)/kernel': [null, null, null]}", "[1, 2]") ==
        Rules{".*/a/(key|value)/kernel [null, null, null]",
              R"((?!(?:.*/a/(key|value)/kernel)$)layer_\d+/a/(query|key|value)/kernel )"
              "[null, tp, null]",
              output});
  CHECK(rules_of("{preset: megatron, '.*/kernel': [null]}", "[1, 2]") == Rules{".*/kernel [null]"});
}

TEST_CASE("a preset splits a decoder's cross attention only where there is an encoder") {
  const auto splits_cross = [](const std::string& inputs, const std::string& others = "") {
    const Config config = config_from(
        R"(
distribution: {device_mesh: {shape: [1, 2], axis_names: [data, model]}, layout_map: megatron}
model:
  layers:
    - Input: {name: i, shape: [6], dtype: int32}
    - Embedding: {name: e, input_dim: 9, output_dim: 8, inputs: i}
)" + others +
        R"(    - TransformerDecoder: {name: d, intermediate_dim: 16, num_heads: 2, inputs: )" +
        inputs + R"(}
    - Dense: {name: out, units: 1, inputs: d}
compile: {loss: mse}
)");
    const Setup setup(config, nullptr);  // every rule matches
    const auto& rules = config.distribution.layout_map;
    return std::any_of(rules.begin(), rules.end(), [](const LayoutRule& rule) {
      return rule.key == "d/cross_attention/(query|key|value)/kernel";
    });
  };
  const std::string mask = "    - Input: {name: m, shape: [6], dtype: bool}\n";
  const std::string encoder = "    - Input: {name: s, shape: [4, 8]}\n";
  CHECK_FALSE(splits_cross("e"));
  CHECK_FALSE(splits_cross("[e]"));
  CHECK_FALSE(splits_cross("{decoder_sequence: e, decoder_padding_mask: m}", mask));
  CHECK(splits_cross("[e, s]", encoder));
  CHECK(splits_cross("{decoder_sequence: e, encoder_sequence: s}", encoder));
  CHECK(splits_cross("{decoder_sequence: e, encoder_sequence: s, decoder_padding_mask: m}",
                     mask + encoder));
}

TEST_CASE("collectives of a model of two layers under each preset") {
  const auto counts = [](const std::string& preset, const std::string& mesh) {
    const Config config = config_from(remat_yaml(kGptBlocks, "none",
                                                 R"(
distribution: {device_mesh: {shape: )" + mesh + R"(, axis_names: [batch, model]}, layout_map: )" +
                                                     preset + "}\n"),
                                      {"model.layers.2.times=2"});
    const Setup setup(config, nullptr);
    std::map<std::string, int> found;
    for (const Node& node : setup.compile(StepKind::kTrain, 8, /*bucket=*/false).graph.nodes) {
      if (communicates(*node.op) && node.phase != Phase::kUpdate)
        ++found[std::string(phase_name(node.phase)) + " " + std::string(node.op->name)];
    }
    return found;
  };
  // One sum behind each row product, and one of each layer's cotangents: 2 L in each direction.
  CHECK(counts("megatron", "[1, 2]") ==
        std::map<std::string, int>{{"backward all_reduce", 4}, {"forward all_reduce", 4}});
}
