// Mixtures of experts on meshes: which collectives they take, and that the numbers are those of one
// device. tests/unit/keras compares the layer itself with Keras Hub.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/setup.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

using Counts = std::map<std::string, int>;

constexpr int64_t kSteps = 6, kIds = 11;

// Two layers of Mixtral's kind. `moe`: arguments of SparseMoE; `more`: sections of the config.
std::string yaml_of(const std::string& moe, const std::string& more, const std::string& remat) {
  return R"(
dtype_policy: float64
seed: 3
blocks:
  Layer:
    inputs: [x]
    layers:
      - RMSNormalization: {name: norm, inputs: x}
      - GroupQueryAttention: {name: attention, head_dim: 4, num_query_heads: 2,
          num_key_value_heads: 2, use_bias: false, call: {use_causal_mask: true}}
      - Dropout: {name: drop, rate: 0.2}
      - Add: {name: middle, inputs: [x, drop]}
      - RMSNormalization: {name: feedforward_norm}
      - SparseMoE: {name: moe, num_experts: 4, intermediate_dim: 12)" +
         moe + R"(}
      - Add: {name: sum, inputs: [middle, moe]}
model:
  layers:
    - Input: {name: ids, shape: [6], dtype: int32}
    - Embedding: {name: words, input_dim: 11, output_dim: 8}
    - Repeat: {times: 2, name: "layer_{i}", block: Layer, remat: )" +
         remat + R"(}
    - Dense: {name: logits, units: 11}
compile: {optimizer: {Adam: {learning_rate: 0.01}}, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 16}
)" + more;
}

std::string on_mesh(const std::string& shape, const std::string& names, const std::string& rest) {
  return "distribution: {device_mesh: {shape: [" + shape + "], axis_names: [" + names + "]}" +
         rest + "}\n";
}

// Collectives with their axes; `gradient` are all-reduces of the backward pass.
Counts counts_of(const std::string& moe, const std::string& distribution) {
  const Config config = config_from(yaml_of(moe, distribution, "none"));
  const Setup setup(config, nullptr);
  Counts out;
  for (const Node& node : setup.compile(StepKind::kTrain, 16, /*bucket=*/false).graph.nodes) {
    if (!communicates(*node.op))
      continue;
    const bool is_gradient = node.phase == Phase::kBackward && node.op->name == "all_reduce";
    std::string name = std::string(phase_name(node.phase)) + " " + std::string(node.op->name);
    for (const int64_t axis : node.attr_ints("axes"))
      name += " " + setup.mesh().axis_name(static_cast<int>(axis));
    out[is_gradient ? "gradient" + name.substr(8) : name] += 1;
  }
  return out;
}

std::vector<double> losses_of(const std::string& yaml) {
  const Config config = config_from(yaml);
  HostTensor x(DType::kInt32, {32, 6}), y(DType::kInt32, {32, 6});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(splitmix_below(1, static_cast<uint64_t>(i), kIds)));
    y.set(i, static_cast<double>(splitmix_below(2, static_cast<uint64_t>(i), kIds)));
  }
  const Dataset data = dataset_of(std::move(x), std::move(y));
  Engine engine(config, data_spec(data), {.num_workers = 2});
  std::vector<double> out;
  for (int64_t step = 0; step < kSteps; ++step) {
    engine.train_step({&data, rows_of_step(step, 16, data.num_samples)});
    out.push_back(engine.last_loss());
  }
  return out;
}

const std::string kOneDevice = on_mesh("1", "data", "");

}  // namespace

// Of the 23 weights, 17 are no experts'. Each layer's balancing loss and the loss itself are one
// all-reduce each.
TEST_CASE("experts with capacities take two all-to-alls a layer forward and two backward") {
  const std::string capacity = ", capacity_factor: 1.25";
  CHECK(counts_of(capacity, on_mesh("2, 2", "data, expert", ", layout_map: expert")) ==
        Counts{{"forward all_to_all expert", 4},
               {"forward all_reduce data expert", 3},
               {"backward all_to_all expert", 4},
               {"gradient all_reduce data", 6},
               {"gradient all_reduce data expert", 17}});
  CHECK(counts_of(capacity, on_mesh("4", "data", ", layout_map: expert")) ==
        Counts{{"forward all_to_all data", 4},
               {"forward all_reduce data", 3},
               {"backward all_to_all data", 4},
               {"gradient all_reduce data", 17}});
}

// The outputs of the experts are summed, and backward the gradients of their input; the router's
// weights take the all-gather.
TEST_CASE("experts apart from the batch take one all-reduce a layer forward and one backward") {
  for (const std::string moe : {"", ", capacity_factor: 1.25"}) {
    CHECK(counts_of(
              moe, on_mesh("2, 2", "data, expert", ", batch_dim_name: data, layout_map: expert")) ==
          Counts{{"forward all_reduce data", 3},
                 {"forward all_reduce expert", 2},
                 {"backward all_gather expert", 2},
                 {"gradient all_reduce data", 23},
                 {"gradient all_reduce expert", 2}});
  }
}

// Backward, one sum of gate and intermediate is scattered. The router's weights take the
// all-to-alls.
TEST_CASE("experts without capacities gather the steps and scatter the sums") {
  CHECK(counts_of("", on_mesh("2, 2", "data, expert", ", layout_map: expert")) ==
        Counts{{"forward all_gather expert", 2},
               {"forward all_to_all expert", 2},
               {"forward reduce_scatter expert", 2},
               {"forward all_reduce data expert", 3},
               {"backward all_gather expert", 2},
               {"backward all_to_all expert", 2},
               {"backward reduce_scatter expert", 2},
               {"gradient all_reduce data", 6},
               {"gradient all_reduce data expert", 17}});
}

// Attention takes one all-reduce a layer each way. Backward, an expert takes one for its input and
// one for the router's weights.
TEST_CASE("experts of whose columns each device has some take Megatron's all-reduces") {
  CHECK(counts_of("", on_mesh("2, 2", "data, model", ", layout_map: megatron")) ==
        Counts{{"forward all_reduce data", 3},
               {"forward all_reduce model", 4},
               {"gradient all_reduce data", 23},
               {"gradient all_reduce model", 6}});
}

TEST_CASE("experts have one device's losses on every mesh") {
  for (const std::string moe : {"", ", capacity_factor: 0.75",
                                ", capacity_factor: 2, top_k: 1, router_jitter_noise: 0.3"}) {
    const std::vector<double> one = losses_of(yaml_of(moe, kOneDevice, "none"));
    CHECK(one.back() < one.front());
    for (const std::string remat : {"none", "block", "dots"}) {
      for (const std::string& distribution :
           {on_mesh("2, 2", "data, expert", ", layout_map: expert"),
            on_mesh("2, 2", "data, expert", ", layout_map: expert, zero: 3"),
            on_mesh("2, 4", "data, expert", ", layout_map: expert, zero: 1"),
            on_mesh("4", "data", ", layout_map: expert"),
            on_mesh("2, 2", "data, expert", ", batch_dim_name: data, layout_map: expert, zero: 3"),
            on_mesh("2, 2", "expert, data",
                    ", batch_dim_name: [expert, data], layout_map: "
                    "{'.*/experts/.*': [expert, null, null]}"),
            on_mesh("2, 2", "data, model", ", layout_map: megatron_fsdp")}) {
        CAPTURE(moe);
        CAPTURE(remat);
        CAPTURE(distribution);
        const std::vector<double> found = losses_of(yaml_of(moe, distribution, remat));
        for (size_t i = 0; i < one.size(); ++i)
          CHECK(std::abs(found[i] - one[i]) <= 1e-9 * std::abs(one[i]));
      }
    }
  }
}

TEST_CASE("a batch that the mesh does not divide has whole experts' numbers, too") {
  const Config config = config_from(yaml_of(
      ", capacity_factor: 1", on_mesh("2, 2", "data, expert", ", layout_map: expert"), "none"));
  const Setup setup(config, nullptr);
  CHECK(!setup.compile(StepKind::kTrain, 7).graph.nodes.empty());
  CHECK(!setup.compile(StepKind::kPredict, 3).graph.nodes.empty());
}

TEST_CASE("the loss that balances experts counts in training alone") {
  const auto loss_of = [](StepKind kind, const std::string& moe) {
    const Config config = config_from(yaml_of(moe, kOneDevice, "none"));
    const Setup setup(config, nullptr);
    const Graph graph = setup.global_graph(kind, 16);
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
      return node.phase == Phase::kForward && node.path.find("/balance/") != std::string::npos;
    });
  };
  CHECK(loss_of(StepKind::kTrain, "") > 0);
  CHECK(loss_of(StepKind::kTest, "") == 0);
  CHECK(loss_of(StepKind::kPredict, "") == 0);
  CHECK(loss_of(StepKind::kTrain, ", router_aux_loss_coef: 0") == 0);
}

TEST_CASE("the choice of experts is kept where a block is computed again") {
  const Config config = config_from(yaml_of("", kOneDevice, "block"));
  const Setup setup(config, nullptr);
  const Graph graph = setup.global_graph(StepKind::kTrain, 16);
  const auto count = [&](bool again) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return node.op->name == "top_k" && node.has_attr("remat") == again;
    });
  };
  CHECK(count(false) == 2);
  CHECK(count(true) == 0);
}

TEST_CASE("the preset `expert` splits experts over the last axis, and the batch over both") {
  const Config two =
      config_from(yaml_of("", on_mesh("2, 2", "data, expert", ", layout_map: expert"), "none"));
  CHECK(two.distribution.batch_dim_name.value == std::vector<std::string>{"data", "expert"});
  REQUIRE(two.distribution.layout_map.size() == 1);
  CHECK(two.distribution.layout_map[0].key == R"(layer_\d+/moe/experts/expert_.*)");
  const Config one = config_from(yaml_of("", on_mesh("4", "data", ", layout_map: expert"), "none"));
  CHECK(one.distribution.batch_dim_name->empty());
  CHECK(one.distribution.layout_map[0].layout.dims[0] == std::vector<std::string>{"data"});
  // The weights of experts stay with their devices; what is left is split by `zero`.
  const Setup setup(two, nullptr);
  for (const Variable& variable : setup.variables()) {
    if (variable.path == "layer_0/moe/experts/expert_feedforward_gate_dense") {
      CHECK(variable.layout.compute.dims[0] == AxisList{1});
      CHECK(variable.layout.storage == variable.layout.compute);
    }
  }
}

// One expert of linear functions: a feature x becomes c * x^2.
TEST_CASE(
    "router_jitter_noise scales what experts read by other factors at each step of training") {
  Config config = config_from(R"(
dtype_policy: float64
seed: 3
model:
  layers:
    - Input: {shape: [1]}
    - SparseMoE: {name: moe, num_experts: 1, top_k: 1, intermediate_dim: 1, activation: linear,
        router_jitter_noise: 0.2, router_aux_loss_coef: 0.0, kernel_initializer: ones}
compile: {optimizer: {SGD: 0.0}, loss: mae}
fit: {batch_size: 1}
)");
  Dataset data = dataset_of(tensor_of<double>(DType::kFloat64, {1, 1}, {1.0}),
                            tensor_of<double>(DType::kFloat64, {1, 1}, {0.0}));
  Engine engine(config, data_spec(data), {.num_workers = 1});
  const std::vector<int64_t> rows = {0};
  CHECK(engine.predict_step({&data, rows})[0].at(0) == 1);
  double least = 1, most = 1, sum = 0;
  constexpr int kDraws = 400;
  for (int i = 0; i < kDraws; ++i) {
    engine.train_step({&data, rows});
    const double factor = std::sqrt(engine.last_loss());
    least = std::min(least, factor);
    most = std::max(most, factor);
    sum += factor;
  }
  CHECK(least >= 0.8);
  CHECK(least < 0.82);
  CHECK(most <= 1.2);
  CHECK(most > 1.18);
  CHECK(std::abs(sum / kDraws - 1) < 0.02);
}
