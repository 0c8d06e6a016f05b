// Contrastive search: its scores by hand, texts of Keras Hub's ContrastiveSampler, and texts beyond
// the positions of a model against forward passes over each window.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/generation.h"
#include "engine/token_states.h"
#include "support/engine_case.h"
#include "support/golden_json.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kPlaces = 24, kVocabulary = 13, kWidth = 16;

// The GPT of tests/reference/contrastive.py.
constexpr const char* kContrastiveGpt = R"(
dtype_policy: float64
model:
  layers:
    - Input: {name: token_ids, shape: [24], dtype: int32}
    - ReversibleEmbedding: {name: token_embedding, input_dim: 13, output_dim: 16}
    - PositionEmbedding: {name: position_embedding, sequence_length: 24}
    - Add: {name: embeddings_add, inputs: [token_embedding, position_embedding]}
    - Repeat:
        times: 2
        layers:
          - TransformerDecoder:
              name: transformer_layer_{i}
              intermediate_dim: 32
              num_heads: 2
              activation: gelu
              normalize_first: true
    - LayerNormalization: {name: layer_norm, epsilon: 1e-5}
    - Call: {layer: token_embedding, name: logits, call: {reverse: true}}
compile: {optimizer: sgd, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
distribution:
  type: ModelParallel
  device_mesh: {shape: [1, 1], axis_names: [data, model]}
  layout_map:
    token_embedding/embeddings: [null, model]
    .*/feedforward_intermediate_dense/kernel: [null, model]
)";

std::string replaced(std::string yaml, const std::string& old, const std::string& replacement) {
  yaml.replace(yaml.find(old), old.size(), replacement);
  return yaml;
}

Sampler contrastive(const std::string& numbers, double temperature = 1) {
  Sampler sampler = parse_sampler("contrastive=" + numbers);
  sampler.temperature = temperature;
  return sampler;
}

struct Search {
  Search(const std::string& yaml, const Sampler& sampler) : config(config_from(yaml)) {
    const Setup setup(config, nullptr);
    model = generation_model(setup, kPlaces);
    DataSpec spec;
    spec.inputs = {{{kPlaces}, DType::kInt32}};
    spec.targets = setup.data().targets;
    engine = std::make_unique<Engine>(
        config, spec,
        EngineOptions{.num_workers = 1, .decode = decode_options(model, sampler, sampler.count)});
    generation = std::make_unique<Generation>(*engine, model, sampler.count);
    request.sampler = sampler;
    request.num_ids = kVocabulary;
  }

  // Weights of rank 2 and more as signed(first + i), i counting all weights.
  void write_weights(uint64_t first, float scale) {
    const std::vector<std::string> paths = engine->weight_paths();
    for (size_t i = 0; i < paths.size(); ++i) {
      const bool is_random = !paths[i].ends_with("gamma") && !paths[i].ends_with("beta") &&
                             !paths[i].ends_with("bias");
      HostTensor value = engine->read_variable(paths[i]).cast(DType::kFloat32);
      for (int64_t k = 0; is_random && k < value.size(); ++k)
        value.data<float>()[k] = splitmix_signed(first + i, static_cast<uint64_t>(k), scale);
      engine->write_variable(paths[i], value);
    }
  }

  std::vector<int32_t> behind(const std::vector<int32_t>& prompt, int64_t count) {
    const std::vector<GenerationRow> rows(static_cast<size_t>(request.sampler.count),
                                          {prompt, 0, count});
    return generation->run(rows, request)[0].ids;
  }

  struct Read {
    std::vector<float> scores;   // of the next id
    std::vector<double> states;  // of the tokens that were read
  };
  // A forward pass over the last window of a text.
  Read read(std::vector<int32_t> text) const {
    const auto length = std::min<int64_t>(static_cast<int64_t>(text.size()), kPlaces);
    text.erase(text.begin(), text.end() - length);
    text.resize(kPlaces);  // a causal model does not read what follows
    Dataset data = dataset_of(tensor_of<int32_t>(DType::kInt32, {1, kPlaces}, text),
                              tensor_of<int32_t>(DType::kInt32, {1, kPlaces}, text));
    const std::vector<int64_t> rows = {0};
    const std::vector<HostTensor> outputs = engine->predict_step({&data, rows});
    Read out;
    for (int64_t id = 0; id < kVocabulary; ++id)
      out.scores.push_back(static_cast<float>(outputs[0].at((length - 1) * kVocabulary + id)));
    for (int64_t i = 0; i < length * kWidth; ++i)
      out.states.push_back(outputs[1].at(i));
    return out;
  }

  std::vector<int32_t> expected(std::vector<int32_t> text, int64_t count) const {
    std::vector<int32_t> ids;
    TokenStates earlier;
    earlier.add(read(text).states, kWidth);
    for (int64_t i = 0; i < count; ++i) {
      const auto candidates = contrastive_candidates(request.sampler, read(text).scores);
      std::vector<double> similarities;
      std::vector<std::vector<double>> states;
      for (const Candidate& candidate : candidates) {
        std::vector<int32_t> longer = text;
        longer.push_back(candidate.id);
        const std::vector<double> all = read(longer).states;
        states.emplace_back(all.end() - kWidth, all.end());
        similarities.push_back(earlier.largest_similarity(states.back()));
      }
      const size_t choice = contrastive_choice(request.sampler, candidates, similarities);
      earlier.add(states[choice], kWidth);
      ids.push_back(candidates[choice].id);
      text.push_back(ids.back());
    }
    return ids;
  }

  Config config;
  std::unique_ptr<Engine> engine;
  GenerationModel model;
  std::unique_ptr<Generation> generation;
  GenerationRequest request;
};

}  // namespace

TEST_CASE("the name of contrastive search") {
  CHECK(parse_sampler("contrastive").count == 5);
  CHECK(parse_sampler("contrastive").alpha == 0.6);
  CHECK(parse_sampler("contrastive=3").alpha == 0.6);
  CHECK(parse_sampler("contrastive=3,0").count == 3);
  CHECK(parse_sampler("contrastive=3,0").alpha == 0);
  for (const char* text :
       {"contrastive=", "contrastive=0", "contrastive=5,2", "contrastive=5,", "contrastive=,0.5",
        "contrastive=5,-0.1", "contrastive=5,nan", "contrastive=5,0.5,1"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_sampler(text), ConfigError);
  }
}

TEST_CASE("contrastive search weighs probability against similarity") {
  const std::vector<float> scores = {std::log(0.1F), std::log(0.5F), std::log(0.4F)};
  const auto candidates = contrastive_candidates(contrastive("2"), scores);
  REQUIRE(candidates.size() == 2);
  CHECK(candidates[0].id == 1);
  CHECK(candidates[0].probability == doctest::Approx(0.5));
  CHECK(candidates[1].id == 2);
  CHECK(candidates[1].probability == doctest::Approx(0.4));
  CHECK(contrastive_candidates(contrastive("4"), scores)[3].id == 0);

  TokenStates earlier;
  earlier.add(std::vector<double>{3, 4, 0, -2}, 2);  // two tokens
  CHECK(earlier.largest_similarity(std::vector<double>{6, 8}) == doctest::Approx(1));
  CHECK(earlier.largest_similarity(std::vector<double>{4, -3}) == doctest::Approx(0.6));
  CHECK(earlier.largest_similarity(std::vector<double>{0, 0}) == 0);

  // 0.4 * 0.5 - 0.6 * 1 is less than 0.4 * 0.4 - 0.6 * 0.6.
  const std::vector<double> similarities = {1, 0.6};
  CHECK(contrastive_choice(contrastive("2"), candidates, similarities) == 1);
  CHECK(contrastive_choice(contrastive("2,0.1"), candidates, similarities) == 0);
  // Of equal ones the first.
  CHECK(contrastive_choice(contrastive("2,1"), candidates, std::vector<double>{1, 1}) == 0);
}

TEST_CASE("texts are those of Keras Hub's ContrastiveSampler on every mesh") {
  const nlohmann::json golden = golden_json("keras/contrastive");
  for (const char* mesh : {"[1, 1]", "[1, 2]", "[2, 1]"}) {
    for (const nlohmann::json& expected : golden["cases"]) {
      const auto prompt = expected["prompt"].get<std::vector<int32_t>>();
      const auto ids = expected["ids"].get<std::vector<int32_t>>();
      CAPTURE(mesh);
      CAPTURE(expected.dump());
      Search texts(replaced(kContrastiveGpt, "[1, 1]", mesh),
                   contrastive(fmt::format("{},{}", expected["k"].get<int>(),
                                           expected["alpha"].get<double>()),
                               expected["temperature"]));
      texts.write_weights(golden["seed_of_weights"], golden["scale"]);
      CHECK(texts.generation->window_reason(kPlaces) == "");
      CHECK(texts.behind(prompt, static_cast<int64_t>(ids.size())) == ids);
    }
  }
}

TEST_CASE("texts beyond the positions of a model, and those of a model without caches") {
  const std::string both_ways =
      replaced(kContrastiveGpt, "TransformerDecoder", "TransformerEncoder");
  for (const bool is_causal : {true, false}) {
    CAPTURE(is_causal);
    Search texts(is_causal ? kContrastiveGpt : both_ways, contrastive("3"));
    texts.write_weights(800, 1);
    CHECK(texts.generation->least_prompt() == (is_causal ? 1 : kPlaces));
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < (is_causal ? 20 : 27); ++i)
      prompt.push_back(i * 5 % 13);
    CHECK(texts.behind(prompt, 9) == texts.expected(prompt, 9));
  }
}

TEST_CASE("probabilities at the output, and models that do not end in a product") {
  const std::string head =
      "    - Call: {layer: token_embedding, name: logits, call: {reverse: true}}\n";
  const auto with_head = [&](const std::string& layers) {
    return replaced(kContrastiveGpt, head, layers);
  };
  Search logits(with_head("    - Dense: {name: logits, units: 13}\n"), contrastive("3"));
  Search shares(with_head("    - Dense: {name: logits, units: 13}\n    - Softmax\n"),
                contrastive("3"));
  logits.write_weights(900, 1);
  shares.write_weights(900, 1);
  CHECK(shares.behind({1, 2, 3}, 9) == logits.behind({1, 2, 3}, 9));
  const auto error = caught([&] {
    Search(with_head("    - Dense: {name: a, units: 13}\n"
                     "    - Dense: {name: b, units: 13}\n    - Add: {inputs: [a, b]}\n"),
           contrastive("3"));
  });
  CHECK(error.code == "E324");
  CHECK(error.text.find("this model has no hidden states: `add/") != std::string::npos);
}
