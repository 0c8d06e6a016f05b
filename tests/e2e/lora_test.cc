// Low-rank factors (`model.lora`, `lora_rank`): what they train, where they lie, what files of them
// hold.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "support/splitmix.h"
#include "tensor/npz.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

HostTensor values(const Shape& shape, uint64_t seed) {
  HostTensor out(DType::kFloat64, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, test::splitmix_signed(seed, static_cast<uint64_t>(i), 0.5F));
  }
  return out;
}

// Losses of all steps.
std::vector<double> losses(const TemporaryFolder& folder, std::vector<std::string> words,
                           const std::string& run) {
  words.insert(words.begin(), "train");
  words.insert(words.end(), {"-o", run, "run.log_steps=true", "-q"});
  const Result result = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  std::vector<double> out;
  for (const std::string& line : split(folder.read(run + "/metrics.jsonl"), '\n')) {
    if (contains(line, "\"step\"") && contains(line, "\"event\":\"step\"")) {
      out.push_back(Json::parse(line).at("loss").get<double>());
    }
  }
  REQUIRE(out.size() == 8);
  return out;
}

void check_same(const std::vector<double>& found, const std::vector<double>& expected,
                double bound) {
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(found[i] - expected[i]) <= bound * std::abs(expected[i]));
  }
}

// `layers`: behind the Input `x` of six features; the last gives five logits.
std::string config(const std::string& layers, const std::string& more = "",
                   const std::string& shape = "[6]") {
  return "dtype_policy: float64\n"
         "data: {shuffle: false, train: {source: random, samples: 32, shape: " +
         shape +
         ", classes: 5}}\n"
         "model:\n" +
         more + "  layers:\n  - Input: {name: x, shape: " + shape + "}\n" + layers +
         "compile: {optimizer: {Adam: {learning_rate: 0.05}},\n"
         "  loss: {SparseCategoricalCrossentropy: {from_logits: true}}}\n"
         "fit: {batch_size: 8, epochs: 2}\n";
}

void write_weights(const TemporaryFolder& folder, const std::string& name,
                   const std::map<std::string, std::pair<Shape, uint64_t>>& weights) {
  std::vector<NamedTensor> tensors;
  for (const auto& [path, made] : weights) {
    tensors.push_back({path, values(made.first, made.second)});
  }
  write_npz(folder.file(name), tensors);
}

const char* const kDense =
    "  - Dense: {name: d, units: 5, use_bias: false, lora_rank: 2, "
    "lora_alpha: 4}\n";

TEST_CASE("factors train as two dense layers beside a frozen one do") {
  const TemporaryFolder folder;
  folder.write("lora.yaml", config(kDense));
  folder.write("parts.yaml",
               config("  - Dense: {name: d, units: 5, use_bias: false, trainable: false}\n"
                      "  - Dense: {name: a, units: 2, use_bias: false, inputs: x}\n"
                      "  - Dense: {name: b, units: 5, use_bias: false}\n"
                      "  - Lambda: {name: twice, function: 2 * x}\n"
                      "  - Add: {inputs: [d, twice]}\n"));
  write_weights(folder, "lora.npz",
                {{"d/kernel", {{6, 5}, 1}},
                 {"d/lora_kernel_a", {{6, 2}, 2}},
                 {"d/lora_kernel_b", {{2, 5}, 3}}});
  write_weights(folder, "parts.npz",
                {{"d/kernel", {{6, 5}, 1}}, {"a/kernel", {{6, 2}, 2}}, {"b/kernel", {{2, 5}, 3}}});
  const std::vector<double> expected =
      losses(folder, {"parts.yaml", "fit.initial_weights=parts.npz"}, "parts");
  check_same(losses(folder, {"lora.yaml", "fit.initial_weights=lora.npz"}, "one"), expected, 1e-13);
  CHECK(expected.back() < 0.9 * expected.front());
  std::map<std::string, HostTensor> trained;
  for (NamedTensor& each : read_weights(folder.file("one/weights.safetensors"))) {
    trained.emplace(each.name, std::move(each.tensor));
  }
  REQUIRE(trained.size() == 3);
  CHECK(trained.at("d/kernel").at(7) == values({6, 5}, 1).at(7));
  CHECK(trained.at("d/lora_kernel_b").at(7) != values({2, 5}, 3).at(7));
}

TEST_CASE("weights that are no operand of a plain product take their factors in") {
  const TemporaryFolder folder;
  // A convolution over one cell is a dense layer.
  folder.write("conv.yaml",
               config("  - Reshape: {target_shape: [1, 6]}\n"
                      "  - Conv1D: {name: d, filters: 5, kernel_size: 1, use_bias: false, "
                      "lora_rank: 2, lora_alpha: 4}\n"
                      "  - Flatten\n"));
  folder.write("dense.yaml", config(kDense));
  write_weights(folder, "conv.npz",
                {{"d/kernel", {{1, 6, 5}, 1}},
                 {"d/lora_kernel_a", {{1, 6, 2}, 2}},
                 {"d/lora_kernel_b", {{2, 5}, 3}}});
  write_weights(folder, "dense.npz",
                {{"d/kernel", {{6, 5}, 1}},
                 {"d/lora_kernel_a", {{6, 2}, 2}},
                 {"d/lora_kernel_b", {{2, 5}, 3}}});
  check_same(losses(folder, {"conv.yaml", "fit.initial_weights=conv.npz"}, "conv"),
             losses(folder, {"dense.yaml", "fit.initial_weights=dense.npz"}, "dense"), 1e-12);
}

// Every way in which a weight is used: products, tables, recurrent kernels, parts of layers.
const char* const kMixed =
    "  - Embedding: {name: table, input_dim: 12, output_dim: 8}\n"
    "  - MultiHeadAttention: {name: mha, num_heads: 4, key_dim: 2}\n"
    "  - Bidirectional: {name: both, layer: {GRU: {units: 4, return_sequences: true}}}\n"
    "  - TimeDistributed: {name: each, layer: {Dense: {units: 8, lora_rank: 3}}}\n"
    "  - EinsumDense: {name: e, equation: 'abc,cd->abd', output_shape: [null, 8], lora_rank: 2}\n"
    "  - GlobalAveragePooling1D\n  - Dense: {name: head, units: 5}\n";
const char* const kRules =
    "  lora: {'table/embeddings': {rank: 2}, 'mha/.*/kernel': {rank: 2, alpha: 8}, "
    "'both/.*kernel': {rank: 3}}\n"
    "  frozen: [table, mha, both]\n";

TEST_CASE("models with factors have the same losses on every mesh") {
  const TemporaryFolder folder;
  const std::string text = config(kMixed, kRules, "[7]");
  folder.write("m.yaml",
               text +
                   "seed: 3\ndistribution: {type: ModelParallel, device_mesh: {shape: "
                   "[1, 1], axis_names: [data, model]},\n  layout_map: {'(each/.*|e)/"
                   "kernel': [null, model], 'mha/(query|key|value)/kernel': [null, model, "
                   "null], 'mha/attention_output/kernel': [model, null, null]}}\n");
  HostTensor x(DType::kInt32, {32, 7}), y(DType::kInt32, {32});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(i * 5 % 12));
  }
  for (int64_t i = 0; i < y.size(); ++i) {
    y.set(i, static_cast<double>(i * 3 % 5));
  }
  std::vector<NamedTensor> arrays;
  arrays.push_back({"x", std::move(x)});
  arrays.push_back({"y", std::move(y)});
  write_npz(folder.file("ids.npz"), arrays);
  const auto on = [&](const std::string& mesh, const std::string& run) {
    return losses(folder, {"m.yaml", "data.train={source: npz, path: ids.npz}", "--mesh", mesh},
                  run);
  };
  const std::vector<double> expected = on("1x1", "one");
  CHECK(expected.back() < expected.front());
  check_same(on("1x4", "four"), expected, 1e-9);
  check_same(on("2x2", "both"), expected, 1e-9);
}

TEST_CASE("factors are laid out as the dimensions of their weight") {
  const TemporaryFolder folder;
  folder.write("m.yaml", config("  - Dense: {name: up, units: 8, lora_rank: 2}\n"
                                "  - Dense: {name: down, units: 5, lora_rank: 2}\n") +
                             "distribution: {type: ModelParallel, device_mesh: {shape: [1, 2], "
                             "axis_names: [data, model]}, layout_map: {up/kernel: [null, model], "
                             "down/kernel: [model, null]}}\n");
  const Result plan = meshtrain({"plan", "m.yaml", "--format", "json"}, folder.path());
  REQUIRE_MESSAGE(plan.exit_code == 0, plan.err);
  std::map<std::string, Json> shapes;
  const Json made = Json::parse(plan.out);
  for (const Json& variable : made.at("variables")) {
    shapes.emplace(variable.at("path"), variable.at("local_shape"));
  }
  CHECK(shapes.at("up/lora_kernel_a") == Json({6, 2}));
  CHECK(shapes.at("up/lora_kernel_b") == Json({2, 4}));
  CHECK(shapes.at("down/lora_kernel_a") == Json({4, 2}));
  CHECK(shapes.at("down/lora_kernel_b") == Json({2, 5}));
}

TEST_CASE("fine-tuning begins as the model does that it is of, and exports hold one kernel") {
  const TemporaryFolder folder;
  folder.write("base.yaml", config("  - Dense: {name: h, units: 8, activation: relu}\n"
                                   "  - Dense: {name: d, units: 5}\n"));
  losses(folder, {"base.yaml"}, "base");
  const std::vector<std::string> factors = {"model.lora={'.*/kernel': {rank: 2, alpha: 3}}",
                                            "model.frozen=['.*']"};
  const auto run = [&](std::vector<std::string> words, const std::vector<std::string>& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    const Result result = meshtrain(words, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return result.out;
  };
  const auto loss = [&](const std::vector<std::string>& more) {
    const std::string out = run(
        {"evaluate", "base.yaml", "--weights", "base/weights.safetensors",
         "data.test={source: random, samples: 32, shape: [6], classes: 5}", "--log-format", "json"},
        more);
    return Json::parse(out).at("logs").at("loss").get<double>();
  };
  CHECK(loss(factors) == loss({}));
  const Result noted =
      meshtrain({"evaluate", "base.yaml", "--weights", "base/weights.safetensors",
                 "data.test={source: random, samples: 8, shape: [6], classes: 5}", factors[0]},
                folder.path());
  CHECK_MESSAGE(contains(noted.err, "has no low-rank factors: the model is the one before"),
                noted.err);
  std::vector<std::string> tune = {"base.yaml", "fit.initial_weights=base/weights.safetensors"};
  tune.insert(tune.end(), factors.begin(), factors.end());
  const std::vector<double> tuned = losses(folder, tune, "tuned");
  CHECK(tuned.back() != tuned.front());
  std::map<std::string, HostTensor> old, fresh;
  for (NamedTensor& each : read_weights(folder.file("base/weights.safetensors"))) {
    old.emplace(each.name, std::move(each.tensor));
  }
  for (NamedTensor& each : read_weights(folder.file("tuned/weights.safetensors"))) {
    fresh.emplace(each.name, std::move(each.tensor));
  }
  CHECK(fresh.size() == 8);
  CHECK(fresh.at("h/bias").at(0) == old.at("h/bias").at(0));
  write_npz(folder.file("x.npz"), [] {
    std::vector<NamedTensor> out;
    out.push_back({"x", values({4, 6}, 9)});
    return out;
  }());
  const std::string expected = run({"predict", "tuned", "--input", "x.npz", "-o", "-", "-q"});
  for (const std::string name : {"m.keras", "m.weights.h5", "m.safetensors"}) {
    CAPTURE(name);
    run({"export", "tuned", "-o", name});
    const std::string found =
        run({"predict", "base.yaml", "--weights", name, "--input", "x.npz", "-o", "-", "-q"});
    const std::vector<std::string> a = split(found, ','), b = split(expected, ',');
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      CHECK(std::abs(std::atof(a[i].c_str()) - std::atof(b[i].c_str())) <= 1e-6);
    }
  }
}

TEST_CASE("what factors cannot be is said") {
  const TemporaryFolder folder;
  folder.write("m.yaml", config("  - Dense: {name: h, units: 8, kernel_constraint: non_neg}\n"
                                "  - Dense: {name: d, units: 5}\n"));
  const auto refused = [&](const std::string& value) {
    const Result result = meshtrain({"validate", "m.yaml", "model.lora=" + value}, folder.path());
    CHECK(result.exit_code == 2);
    return result.out + result.err;
  };
  const auto says = [&](const std::string& value, const std::string& text) {
    const std::string found = refused(value);
    CHECK_MESSAGE(contains(found, text), found);
  };
  says("{d/kernl: {rank: 4}}", "`d/kernl` of `lora` matches no weight");
  says("{d/bias: {rank: 4}}", "`d/bias` of `lora` matches no weight");
  says("{d/kernel: {rank: 0}}", "must be from 1 to 65536");
  says("{d/kernel: {rnk: 4}}", "unknown key `rnk` in `model.lora`");
  says("{d/kernel: {alpha: 4}}", "`rank` of `model.lora` is missing");
  says("{d/kernel: 4}", "must be a map of keys");
  says("{d/kernel: {rank: 4, alpha: -1}}", "above 0");
  says("{'d/k.*': {rank: 2}, d/kernel: {rank: 4}}", "two patterns of `lora` match `d/kernel`");
  says("{'d(': {rank: 2}}", "d(");
  says("{h/kernel: {rank: 2}}", "`h/kernel` has low-rank factors");
}

}  // namespace
}  // namespace meshtrain
