// Random language models on random meshes, under presets, random layouts, pins and ZeRO levels, in
// float64: the losses, the metrics and every weight of three training steps equal one device's.
#include <doctest/doctest.h>

#include "data/step_order.h"
#include "engine/engine.h"
#include "support/engine_case.h"
#include "support/language_models.h"
#include "support/layout_case.h"
#include "support/sampled.h"

using namespace meshtrain;
using namespace meshtrain::test;
using meshtrain::testing::compare_tensors;
using meshtrain::testing::Random;
using meshtrain::testing::Tensors;

namespace {

constexpr size_t kLanguageCases = 320, kLanguageStride = 8;
constexpr int64_t kBatch = 8;

struct Mesh {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
};
const Mesh kLanguageMeshes[] = {
    {{2}, {"data"}},
    {{4}, {"data"}},
    {{8}, {"data"}},
    {{2, 2}, {"data", "model"}},
    {{4, 2}, {"data", "model"}},
    {{2, 4}, {"data", "model"}},
    {{1, 4}, {"data", "model"}},
    {{1, 8}, {"data", "model"}},
    {{2, 2, 2}, {"data", "fsdp", "model"}},
    {{1, 2, 4}, {"data", "fsdp", "model"}},
};

// Each axis is of a random dimension that it divides, or of none, as a layout of a config.
std::string random_entry(Random& random, const Shape& shape, const Mesh& mesh) {
  std::vector<std::vector<std::string>> dims(shape.size());
  std::vector<int64_t> split(shape.size(), 1);
  for (size_t axis = mesh.shape.size(); axis-- > 0;) {
    const auto dim = static_cast<size_t>(random.below(static_cast<int64_t>(shape.size())));
    if (random.chance(60) && shape[dim] % (split[dim] * mesh.shape[axis]) == 0) {
      split[dim] *= mesh.shape[axis];
      dims[dim].push_back(mesh.names[axis]);
    }
  }
  std::vector<std::string> out;
  for (const std::vector<std::string>& axes : dims) {
    out.push_back(axes.empty() ? "null" : fmt::format("[{}]", fmt::join(axes, ", ")));
  }
  return fmt::format("[{}]", fmt::join(out, ", "));
}

// Rules for some of the weights and outputs of the model.
std::string random_rules(Random& random, const std::string& yaml, const Mesh& mesh) {
  const Config config = config_from(yaml);
  const Setup setup(config, nullptr);
  std::string out;
  for (const Variable& variable : setup.variables()) {
    if (variable.role == VariableRole::kWeight && random.chance(30)) {
      out += fmt::format("    {}: {}\n", variable.path, random_entry(random, variable.shape, mesh));
    }
  }
  for (const Model::Call& call : setup.model().calls()) {
    // Logits that something reads keep the head from being one with the loss.
    if (call.layer != kNone && call.name != "logits" && random.chance(20)) {
      Shape shape = call.output_shape;
      shape[0] = kBatch;
      out += fmt::format("    {}/output: {}\n", call.name, random_entry(random, shape, mesh));
    }
  }
  return out;
}

struct LanguageCase {
  std::string model;   // of one device
  std::string layout;  // section `distribution`
  int64_t last_batch = kBatch;
};

LanguageModel random_language_model(Random& random) {
  LanguageModel out;
  out.family =
      random.pick({LanguageFamily::kGpt, LanguageFamily::kLlama, LanguageFamily::kMixtral});
  out.ties_head = random.chance(50);
  out.masks_zero = random.chance(30);
  out.key_heads = random.pick({1, 2, 4});
  out.dropout = random.chance(80) ? 0.1 : 0;
  out.remat = random.pick({"none", "block", "dots"});
  out.capacity = random.pick({"null", "1.25"});
  return out;
}

LanguageCase random_language_case(Random& random) {
  const LanguageModel model = random_language_model(random);
  const Mesh& mesh = kLanguageMeshes[random.below(std::size(kLanguageMeshes))];
  LanguageCase out;
  out.model = "dtype_policy: float64\nseed: " + std::to_string(random.below(1000)) +
              yaml_of(model, random.pick({"adam", "{SGD: {learning_rate: 0.1, momentum: 0.9}}",
                                          "{AdamW: {learning_rate: 0.01, global_clipnorm: 0.5}}"}));
  std::string preset;
  const bool has_model_axis = mesh.shape.size() > 1;
  switch (random.below(5)) {
    case 0:
      preset = has_model_axis && mesh.shape.back() <= 4 ? "megatron" : "fsdp";
      break;
    case 1:
      preset = has_model_axis ? "context" : "";
      break;
    case 2:
      preset = model.family == LanguageFamily::kMixtral && mesh.shape.back() <= 4 ? "expert" : "";
      break;
    default:
      break;
  }
  const int64_t shards = mesh.shape.back();
  if (preset == "context" && shards <= 4 && random.chance(60) &&
      (model.family != LanguageFamily::kMixtral || model.capacity == "null")) {
    out.model += fmt::format("data: {{head_tail: {}}}\n", shards);
  }
  std::string rules =
      preset.empty() || random.chance(50) ? random_rules(random, out.model, mesh) : "";
  if (!preset.empty()) {
    rules = fmt::format("    preset: {}\n", preset) + rules;
  }
  out.layout = fmt::format("distribution:\n  device_mesh: {{shape: [{}], axis_names: [{}]}}\n",
                           fmt::join(mesh.shape, ", "), fmt::join(mesh.names, ", "));
  if (preset != "fsdp") {
    out.layout += fmt::format("  zero: {}\n", random.below(4));
  }
  if (mesh.shape.size() == 3 && preset != "expert" && random.chance(60)) {
    out.layout += "  batch_dim_name: [data, fsdp]\n";
    out.layout += random.chance(50) ? "  zero_axes: [fsdp]\n" : "";
  }
  out.layout += rules.empty() ? "" : "  layout_map:\n" + rules;
  out.last_batch = random.chance(30) ? 5 : kBatch;  // nothing divides 5
  return out;
}

// Of three steps: the losses, the metrics and the weights.
Tensors trained_language_model(const std::string& yaml, int64_t last_batch) {
  const Config config = config_from(yaml, {"compile.metrics=[accuracy]"});
  Dataset data = random_sequences(24, 7);
  order_steps(data, config.data.head_tail, {});
  Engine engine(config, data_spec(data), {.num_workers = 2});
  Tensors out;
  HostTensor& losses = out["losses"] = HostTensor(DType::kFloat64, {3});
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t batch = step == 2 ? last_batch : kBatch;
    engine.train_step({&data, rows_of_step(step, batch, data.num_samples)});
    losses.set(step, engine.last_loss());
  }
  for (const auto& [name, value] : engine.logs()) {
    (out["log " + name] = HostTensor(DType::kFloat64, {1})).set(0, value);
  }
  for (const std::string& path : engine.weight_paths()) {
    out[path] = engine.read_variable(path);
  }
  // One op has the head and the loss.
  int64_t heads = 0;
  for (const Node& node : engine.setup().global_graph(StepKind::kTrain, kBatch).nodes) {
    heads += node.op->name == "linear_cross_entropy" ? 1 : 0;
  }
  CHECK(heads == 1);
  return out;
}

}  // namespace

TEST_CASE("random language models: losses and weights of every layout equal one device's") {
  for (const size_t seed : sampled_seeds(kLanguageCases, kLanguageStride)) {
    CAPTURE(seed);
    Random random(seed * 15485863 + 5);
    const LanguageCase c = random_language_case(random);
    CAPTURE(c.model);
    CAPTURE(c.layout);
    const Tensors one = trained_language_model(c.model, c.last_batch);
    CHECK(one.at("losses").at(0) != one.at("losses").at(1));
    compare_tensors(trained_language_model(c.model + c.layout, c.last_batch), one);
  }
}
