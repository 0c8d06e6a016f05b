// Collectives of a training step, counted in the program, against what theory says of each layout:
// the same kinds over the same axes with exactly the same bytes, and none besides.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "engine/make_plan.h"
#include "plan/hardware.h"
#include "support/engine_case.h"

using namespace meshtrain;

namespace {

// What a device gives to and sends in all collectives of one kind over the same axes in one phase.
struct Traffic {
  int64_t bytes = 0, sent = 0;
  bool operator==(const Traffic&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Traffic& t) {
  return out << t.bytes << " bytes, " << t.sent << " sent";
}
using Totals = std::map<std::string, Traffic>;  // by "backward all_reduce data"

struct Counted {
  Totals totals;
  std::map<std::string, int> calls;
  int64_t arena = 0;
};

Counted counted(const std::string& yaml) {
  const Config config = test::config_from(yaml);
  const Setup setup(config, nullptr);
  const PlanSummary plan = make_plan(setup);
  Counted out;
  out.arena = plan.memory.activations;
  for (const PlannedCollective& c : plan.collectives) {
    std::string key = fmt::format("{} {}", phase_name(c.phase), move_name(c.kind));
    for (const std::string& axis : c.axes) {
      key += " " + axis;
    }
    out.totals[key].bytes += c.bytes;
    out.totals[key].sent += c.bytes_sent;
    ++out.calls[key];
  }
  return out;
}

// Theory: S bytes of one device's operands among n devices.
Traffic all_reduce(int64_t bytes, int64_t n) {
  return {bytes, 2 * (n - 1) * bytes / n};
}
Traffic all_gather(int64_t bytes, int64_t n) {  // of the whole tensor's bytes
  return {bytes / n, (n - 1) * bytes / n};
}
Traffic reduce_scatter(int64_t bytes, int64_t n) {
  return {bytes, (n - 1) * bytes / n};
}

void check_equal(const Counted& counted, const Totals& theory) {
  for (const auto& [key, traffic] : theory) {
    CAPTURE(key);
    const auto found = counted.totals.find(key);
    REQUIRE(found != counted.totals.end());
    CHECK(found->second == traffic);
  }
  for (const auto& [key, traffic] : counted.totals) {
    CAPTURE(key);
    CAPTURE(traffic);
    CHECK_MESSAGE(theory.count(key) == 1, "theory does not need it");
  }
}

// --- a model of dense layers --------------------------------------------------------------------

constexpr int64_t kWidth = 64, kHidden = 128, kBlocks = 3, kBatch = 32;

// Blocks of Dense(kHidden) and Dense(kWidth) with biases; every size divides by 16.
std::string mlp(const std::string& distribution, const std::string& optimizer = "adam") {
  std::string out = fmt::format("model:\n  layers:\n    - Input: {{shape: [{}]}}\n", kWidth);
  for (int64_t i = 0; i < kBlocks; ++i) {
    out += fmt::format(
        "    - Dense: {{units: {}, activation: relu, name: up{}}}\n"
        "    - Dense: {{units: {}, name: down{}}}\n",
        kHidden, i, kWidth, i);
  }
  return out +
         fmt::format("compile: {{optimizer: {}, loss: mse}}\nfit: {{batch_size: {}}}\n", optimizer,
                     kBatch) +
         distribution;
}

constexpr int64_t kMlpBytes =
    4 * kBlocks * (kWidth * kHidden + kHidden + kHidden * kWidth + kWidth);

std::string mesh(const std::vector<int64_t>& shape, const std::string& axes,
                 const std::string& more) {
  return fmt::format("distribution:\n  device_mesh: {{shape: [{}], axis_names: [{}]}}\n{}",
                     fmt::join(shape, ", "), axes, more);
}

constexpr const char* kTensorParallel =
    "  layout_map:\n"
    "    up.*/kernel: [null, model]\n"
    "    up.*/bias: [model]\n"
    "    down.*/kernel: [model, null]\n";

}  // namespace

TEST_CASE("data parallel: an all_reduce of each gradient and of the loss") {
  for (const int64_t n : {2, 4, 8, 16}) {
    CAPTURE(n);
    const Counted c = counted(mlp(mesh({n}, "data", "")));
    check_equal(c, {{"forward all_reduce data", all_reduce(4, n)},
                    {"backward all_reduce data", all_reduce(kMlpBytes, n)}});
    CHECK(c.calls.at("backward all_reduce data") == 1);  // one bucket
  }
}

TEST_CASE("FSDP: weights gathered once and gradients scattered once") {
  for (const int64_t n : {2, 4, 8, 16}) {
    CAPTURE(n);
    check_equal(counted(mlp(mesh({n}, "data", "  zero: 3\n"))),
                {{"forward all_reduce data", all_reduce(4, n)},
                 {"forward all_gather data", all_gather(kMlpBytes, n)},
                 {"backward reduce_scatter data", reduce_scatter(kMlpBytes, n)}});
  }
}

// Of the kernels, the first layer's is not read in the backward pass, and the last one's is kept.
TEST_CASE("FSDP: large weights are gathered again for the backward pass") {
  const int64_t n = 4, layers = 12, kernel = 4 * 8192 * 8192,
                weights = layers * (kernel + 4 * 8192);
  for (const std::string type : {"float32", "mixed_bfloat16"}) {
    CAPTURE(type);
    const int64_t half = type == "float32" ? 1 : 2;
    std::string yaml =
        "dtype_policy: " + type + "\nmodel:\n  layers:\n    - Input: {shape: [8192]}\n";
    for (int64_t i = 0; i < layers; ++i) {
      yaml += fmt::format("    - Dense: {{units: 8192, name: d{}}}\n", i);
    }
    yaml += "compile: {optimizer: adam, loss: mse}\nfit: {batch_size: 8}\n" +
            mesh({n}, "data", "  zero: 3\n");
    std::map<std::string, Traffic> theory = {
        {"forward all_reduce data", all_reduce(4, n)},
        {"forward all_gather data", all_gather(weights / half, n)},
        {"backward reduce_scatter data", reduce_scatter(weights, n)}};
    const Counted kept = counted(yaml + "  reshard_after_forward: false\n");
    check_equal(kept, theory);
    theory["backward all_gather data"] = all_gather((layers - 2) * kernel / half, n);
    const Counted again = counted(yaml);
    check_equal(again, theory);
    CHECK(kept.arena - again.arena > layers / 6 * kernel / half);
  }
}

TEST_CASE("ZeRO-1 and ZeRO-2: gradients scattered and new weights gathered") {
  for (const int64_t n : {2, 4, 8, 16}) {
    for (const int zero : {1, 2}) {
      CAPTURE(n);
      CAPTURE(zero);
      const Counted c = counted(mlp(mesh({n}, "data", fmt::format("  zero: {}\n", zero))));
      check_equal(c, {{"forward all_reduce data", all_reduce(4, n)},
                      {"backward reduce_scatter data", reduce_scatter(kMlpBytes, n)},
                      {"update all_gather data", all_gather(kMlpBytes, n)}});
      // As many bytes as data parallel sends.
      CHECK(c.totals.at("backward reduce_scatter data").sent +
                c.totals.at("update all_gather data").sent ==
            all_reduce(kMlpBytes, n).sent);
    }
  }
}

TEST_CASE("HSDP: gathered and scattered over the inner axis and shards reduced over the outer") {
  for (const auto& [d, f] : {std::pair<int64_t, int64_t>{2, 2}, {2, 4}, {4, 2}, {4, 8}}) {
    CAPTURE(d);
    CAPTURE(f);
    check_equal(
        counted(mlp(mesh({d, f}, "data, fsdp",
                         "  batch_dim_name: [data, fsdp]\n  zero: 3\n  zero_axes: [fsdp]\n"))),
        {{"forward all_reduce data fsdp", all_reduce(4, d * f)},
         {"forward all_gather fsdp", all_gather(kMlpBytes, f)},
         {"backward reduce_scatter fsdp", reduce_scatter(kMlpBytes, f)},
         {"backward all_reduce data", all_reduce(kMlpBytes / f, d)}});
  }
}

TEST_CASE("tensor parallel: an all_reduce of activations for each block and direction") {
  for (const int64_t n : {2, 4, 8}) {
    CAPTURE(n);
    const int64_t activation = 4 * kBatch * kWidth;
    const Counted c = counted(mlp(mesh({1, n}, "data, model", kTensorParallel)));
    // The input of the first block needs no gradient.
    check_equal(c, {{"forward all_reduce model", all_reduce(kBlocks * activation, n)},
                    {"backward all_reduce model", all_reduce((kBlocks - 1) * activation, n)}});
    CHECK(c.calls.at("forward all_reduce model") == kBlocks);
  }
}

TEST_CASE("data and tensor parallel: gradients of the local parts are reduced over data") {
  for (const auto& [d, m] : {std::pair<int64_t, int64_t>{2, 2}, {2, 4}, {4, 2}, {4, 8}}) {
    CAPTURE(d);
    CAPTURE(m);
    const int64_t activation = 4 * kBatch / d * kWidth;
    const int64_t whole = 4 * kBlocks * kWidth;  // biases of down are on every device
    check_equal(counted(mlp(mesh({d, m}, "data, model", kTensorParallel))),
                {{"forward all_reduce model", all_reduce(kBlocks * activation, m)},
                 {"forward all_reduce data", all_reduce(4, d)},
                 {"backward all_reduce model", all_reduce((kBlocks - 1) * activation, m)},
                 {"backward all_reduce data", all_reduce((kMlpBytes - whole) / m + whole, d)}});
  }
}

TEST_CASE("FSDP and tensor parallel: each over its own axis") {
  const int64_t d = 2, m = 4, activation = 4 * kBatch / d * kWidth;
  const int64_t whole = 4 * kBlocks * kWidth;
  // A bias that is split over model has no dimension left for data: its gradient is all_reduced.
  const int64_t taken = 4 * kBlocks * kHidden / m;
  const int64_t local = (kMlpBytes - whole) / m + whole - taken;
  check_equal(
      counted(mlp(mesh({d, m}, "data, model", std::string("  zero: 3\n") + kTensorParallel))),
      {{"forward all_gather data", all_gather(local, d)},
       {"forward all_reduce model", all_reduce(kBlocks * activation, m)},
       {"forward all_reduce data", all_reduce(4, d)},
       {"backward all_reduce model", all_reduce((kBlocks - 1) * activation, m)},
       {"backward reduce_scatter data", reduce_scatter(local, d)},
       {"backward all_reduce data", all_reduce(taken, d)}});
}

TEST_CASE("optimizers need no collective but for the norm of all gradients") {
  for (const char* optimizer : {"sgd", "rmsprop", "{SGD: {momentum: 0.9}}", "adamw", "lion"}) {
    CAPTURE(optimizer);
    check_equal(counted(mlp(mesh({4}, "data", "  zero: 1\n"), optimizer)),
                {{"forward all_reduce data", all_reduce(4, 4)},
                 {"backward reduce_scatter data", reduce_scatter(kMlpBytes, 4)},
                 {"update all_gather data", all_gather(kMlpBytes, 4)}});
  }
}

TEST_CASE("metrics need one all_reduce of their sums together with the loss") {
  std::string yaml = mlp(mesh({4}, "data", ""));
  yaml.replace(yaml.find("loss: mse"), 9, "loss: mse, metrics: [mae, msle]");
  const Counted c = counted(yaml);
  CHECK(c.calls.at("forward all_reduce data") == 1);
  CHECK(c.totals.at("forward all_reduce data") == all_reduce(4 * 3, 4));
  CHECK(c.totals.size() == 2);
}

// --- a decoder ----------------------------------------------------------------------------------

namespace {

constexpr int64_t kModel = 64, kGated = 192, kVocabulary = 512, kTokens = 16, kLayers = 2;

std::string decoder(const std::string& policy, const std::string& distribution) {
  std::string layers = fmt::format(
      "    - Input: {{shape: [{}], dtype: int32, name: ids}}\n"
      "    - Embedding: {{name: tokens, inputs: ids, input_dim: {}, output_dim: {}}}\n",
      kTokens, kVocabulary, kModel);
  std::string x = "tokens";
  for (int64_t i = 0; i < kLayers; ++i) {
    const auto layer = [&](const std::string& kind, const std::string& name,
                           const std::string& inputs, const std::string& more = "") {
      layers +=
          fmt::format("    - {}: {{name: {}{}, inputs: {}{}}}\n", kind, name, i, inputs, more);
    };
    const auto dense = [&](const std::string& name, const std::string& input, int64_t units) {
      layer("Dense", name, input, fmt::format(", units: {}, use_bias: false", units));
    };
    const std::string n = std::to_string(i);
    layer("RMSNormalization", "norm_a", x);
    dense("query", "norm_a" + n, kModel);
    dense("key", "norm_a" + n, kModel);
    dense("value", "norm_a" + n, kModel);
    layer("Dot", "scores", fmt::format("[query{}, key{}]", n, n), ", axes: 2");
    layer("Softmax", "weights", "scores" + n);
    layer("Dot", "mixed", fmt::format("[weights{}, value{}]", n, n), ", axes: [2, 1]");
    dense("attention", "mixed" + n, kModel);
    layer("Add", "middle", fmt::format("[{}, attention{}]", x, n));
    layer("RMSNormalization", "norm_b", "middle" + n);
    layer("Dense", "gate", "norm_b" + n,
          fmt::format(", units: {}, use_bias: false, activation: silu", kGated));
    dense("up", "norm_b" + n, kGated);
    layer("Multiply", "gated", fmt::format("[gate{}, up{}]", n, n));
    dense("down", "gated" + n, kModel);
    layer("Add", "sum", fmt::format("[middle{}, down{}]", n, n));
    x = "sum" + n;
  }
  layers += fmt::format("    - RMSNormalization: {{name: norm, inputs: {}}}\n", x);
  layers += fmt::format("    - Dense: {{name: head, inputs: norm, units: {}, use_bias: false}}\n",
                        kVocabulary);
  return fmt::format(
             "dtype_policy: {}\nmodel:\n  layers:\n{}compile: {{optimizer: adamw, loss: "
             "{{SparseCategoricalCrossentropy: {{from_logits: true}}}}}}\nfit: {{batch_size: "
             "{}}}\n",
             policy, layers, kBatch) +
         distribution;
}

constexpr int64_t kAttention = 4 * kModel * kModel, kMlp = 3 * kModel * kGated;
constexpr int64_t kDecoder =
    2 * kVocabulary * kModel + kLayers * (kAttention + kMlp + 2 * kModel) + kModel;

}  // namespace

TEST_CASE("a decoder in every layout moves what theory says") {
  const std::string f32 = "float32";
  const int64_t bytes = 4 * kDecoder;
  for (const int64_t n : {2, 4, 8}) {
    CAPTURE(n);
    const Traffic loss = all_reduce(4, n);
    check_equal(
        counted(decoder(f32, mesh({n}, "data", ""))),
        {{"forward all_reduce data", loss}, {"backward all_reduce data", all_reduce(bytes, n)}});
    check_equal(counted(decoder(f32, mesh({n}, "data", "  zero: 1\n"))),
                {{"forward all_reduce data", loss},
                 {"backward reduce_scatter data", reduce_scatter(bytes, n)},
                 {"update all_gather data", all_gather(bytes, n)}});
    check_equal(counted(decoder(f32, mesh({n}, "data", "  zero: 3\n"))),
                {{"forward all_reduce data", loss},
                 {"forward all_gather data", all_gather(bytes, n)},
                 {"backward reduce_scatter data", reduce_scatter(bytes, n)}});
    check_equal(counted(decoder(f32, mesh({2, n}, "data, fsdp",
                                          "  batch_dim_name: [data, fsdp]\n  zero: 3\n"
                                          "  zero_axes: [fsdp]\n"))),
                {{"forward all_reduce data fsdp", all_reduce(4, 2 * n)},
                 {"forward all_gather fsdp", all_gather(bytes, n)},
                 {"backward reduce_scatter fsdp", reduce_scatter(bytes, n)},
                 {"backward all_reduce data", all_reduce(bytes / n, 2)}});
  }
}

TEST_CASE("the products of a decoder split over the model axis need an all_reduce each way") {
  const int64_t d = 2, m = 4;
  const int64_t activation = 4 * kBatch / d * kTokens * kModel;
  const int64_t split = 4 * kLayers * kMlp, local = 4 * kDecoder - split + split / m;
  check_equal(counted(decoder("float32", mesh({d, m}, "data, model",
                                              "  layout_map:\n"
                                              "    (gate|up).*/kernel: [null, model]\n"
                                              "    down.*/kernel: [model, null]\n"))),
              {{"forward all_reduce model", all_reduce(kLayers * activation, m)},
               {"forward all_reduce data", all_reduce(4, d)},
               {"backward all_reduce model", all_reduce(kLayers * activation, m)},
               {"backward all_reduce data", all_reduce(local, d)}});
}

// --- a GPT, whose head shares the table of tokens
// -------------------------------------------------

namespace {

constexpr const char* kMegatron =
    "    .*/(query|key|value)/kernel: [null, model, null]\n"
    "    .*/(query|key|value)/bias: [model, null]\n"
    "    .*/attention_output/kernel: [model, null, null]\n"
    "    up.*/kernel: [null, model]\n"
    "    up.*/bias: [model]\n"
    "    down.*/kernel: [model, null]\n";

std::string gpt(const std::string& rules, const std::string& head, const std::string& metrics) {
  std::string layers = fmt::format(
      "    - Input: {{shape: [{}], dtype: int32, name: ids}}\n"
      "    - ReversibleEmbedding: {{name: tokens, input_dim: {}, output_dim: {}}}\n",
      kTokens, kVocabulary, kModel);
  std::string x = "tokens";
  for (int64_t i = 0; i < kLayers; ++i) {
    layers += fmt::format(
        "    - LayerNormalization: {{name: norm_a{0}, inputs: {1}}}\n"
        "    - MultiHeadAttention: {{name: attention{0}, num_heads: 4, key_dim: 16, call: "
        "{{use_causal_mask: true}}}}\n"
        "    - Add: {{name: middle{0}, inputs: [{1}, attention{0}]}}\n"
        "    - LayerNormalization: {{name: norm_b{0}}}\n"
        "    - Dense: {{name: up{0}, units: 256, activation: gelu}}\n"
        "    - Dense: {{name: down{0}, units: 64}}\n"
        "    - Add: {{name: sum{0}, inputs: [middle{0}, down{0}]}}\n",
        i, x);
    x = fmt::format("sum{}", i);
  }
  return "model:\n  layers:\n" + layers + "    - LayerNormalization: {name: norm}\n" + head +
         fmt::format(
             "compile:\n  optimizer: adamw\n  loss: {{SparseCategoricalCrossentropy: "
             "{{from_logits: true}}}}\n  metrics: [{}]\nfit: {{batch_size: {}}}\n",
             metrics, kBatch) +
         mesh({2, 4}, "data, model", std::string("  layout_map:\n") + kMegatron + rules);
}

constexpr const char* kTiedHead =
    "    - Call: {layer: tokens, name: logits, call: {reverse: true}}\n";

}  // namespace

TEST_CASE("tensor parallel: a whole table, and one of split classes with its head and loss") {
  const int64_t tokens = kBatch / 2 * kTokens, activation = 4 * tokens * kModel, m = 4;
  const Counted whole = counted(gpt("", kTiedHead, "accuracy"));
  CHECK(whole.totals.at("forward all_reduce model") == all_reduce(2 * kLayers * activation, m));
  CHECK(whole.totals.at("backward all_reduce model") == all_reduce(2 * kLayers * activation, m));

  const Counted split =
      counted(gpt("    tokens/embeddings: [model, null]\n", kTiedHead, "accuracy"));
  // The lookup; of the loss the largest logits, then sum, picked logit and hit as one.
  CHECK(split.totals.at("forward all_reduce model") ==
        all_reduce((2 * kLayers + 1) * activation + 4 * tokens + 3 * 4 * tokens, m));
  CHECK(split.calls.at("forward all_reduce model") == 2 * kLayers + 3);
  // dx of the head.
  CHECK(split.totals.at("backward all_reduce model") ==
        all_reduce((2 * kLayers + 1) * activation, m));
  CHECK(split.calls.at("backward all_reduce model") == 2 * kLayers + 1);
  for (const auto& [key, count] : split.calls) {
    CAPTURE(key);
    CHECK(key.find("all_gather") == std::string::npos);
    CHECK(key.find("reduce_scatter") == std::string::npos);
  }
}

TEST_CASE("accuracy of logits of split classes reduces two numbers a token and gathers nothing") {
  const int64_t tokens = kBatch / 2 * kTokens;
  const std::string head = "    - Dense: {name: head, units: 512}\n";
  const char* const rules = "    head/kernel: [null, model]\n    head/bias: [model]\n";
  const Counted with = counted(gpt(rules, head, "accuracy")),
                without = counted(gpt(rules, head, ""));
  const auto forward = [](const Counted& c) {
    return c.totals.at("forward all_reduce model").bytes;
  };
  CHECK(forward(with) - forward(without) == 2 * 4 * tokens);
  CHECK(with.totals.count("forward all_gather model") == 0);
}

TEST_CASE("in mixed precision weights are gathered in 16 bits and gradients scattered in 32") {
  // But the embedding's table, whose rows are cast when they have been looked up.
  const int64_t table = kVocabulary * kModel;
  for (const int64_t n : {2, 8}) {
    CAPTURE(n);
    check_equal(counted(decoder("mixed_bfloat16", mesh({n}, "data", "  zero: 3\n"))),
                {{"forward all_reduce data", all_reduce(4, n)},
                 {"forward all_gather data", all_gather(2 * (kDecoder - table) + 4 * table, n)},
                 {"backward reduce_scatter data", reduce_scatter(4 * kDecoder, n)}});
  }
}

TEST_CASE("gathers of weights are bucketed and do not grow with the layers") {
  const Counted c = counted(decoder("float32", mesh({4}, "data", "  zero: 3\n")));
  CHECK(c.calls.at("forward all_gather data") == 1);
  CHECK(c.calls.at("backward reduce_scatter data") == 1);
}

TEST_CASE("weights are fetched and gradients reduced beside the computation") {
  std::string yaml =
      "dtype_policy: mixed_bfloat16\nmodel:\n  layers:\n    - Input: {shape: [4096]}\n";
  for (int i = 0; i < 12; ++i) {
    yaml += fmt::format("    - Dense: {{units: 4096, activation: relu, name: d{}}}\n", i);
  }
  yaml += "compile: {optimizer: adam, loss: mse, metrics: [mae]}\nfit: {batch_size: 131072}\n" +
          mesh({8}, "data", "  zero: 3\n");
  const Config config = test::config_from(yaml);
  const Setup setup(config, nullptr);
  const PlanSummary plan = make_plan(setup, 0, true, find_hardware(known_hardware(), "H100"));
  const auto count = [&](std::string_view kind) {
    return std::count_if(plan.collectives.begin(), plan.collectives.end(),
                         [&](const PlannedCollective& c) { return move_name(c.kind) == kind; });
  };
  CHECK(count("all_gather") == 2);       // of 12 x 4 MiB, 25 MiB at most
  CHECK(count("reduce_scatter") == 24);  // kernels are larger than a bucket; biases between
  // Kernels wait for the first weights and for the last gradients only.
  std::vector<std::string> exposed;
  for (size_t i = 0; i < plan.collectives.size(); ++i) {
    if (plan.estimate->calls[i].exposed > 0) {
      exposed.emplace_back(move_name(plan.collectives[i].kind));
    }
  }
  CHECK(exposed == std::vector<std::string>{"all_gather", "reduce_scatter"});
}
