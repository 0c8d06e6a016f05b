// Samplers against their definitions, and texts of a model against the whole forward pass anew for
// each id.
#include "engine/generation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities)
    out.push_back(static_cast<float>(std::log(p)));
  return out;
}

// How often each id comes for uniform numbers in steps of 1/1000.
std::vector<int> shares(const std::string& sampler, const std::vector<float>& scores,
                        double temperature = 1) {
  Sampler parsed = parse_sampler(sampler);
  parsed.temperature = temperature;
  std::vector<int> counts(scores.size());
  for (int i = 0; i < 1000; ++i)
    ++counts[static_cast<size_t>(sample_id(parsed, scores, (i + 0.5) / 1000))];
  return counts;
}

using Table = std::vector<std::vector<float>>;  // scores of the next id behind each id

Table random_table(uint64_t seed, size_t ids) {
  Table table(ids);
  for (size_t i = 0; i < ids * ids; ++i)
    table[i / ids].push_back(static_cast<float>(splitmix_signed(seed, i, 2)));
  return table;
}

double log_probability(const std::vector<float>& scores, size_t id) {
  double sum = 0;
  for (const float score : scores)
    sum += std::exp(score);
  return scores[id] - std::log(sum);
}

}  // namespace

TEST_CASE("samplers keep what they say, in the proportions of the model") {
  const std::vector<float> scores = logs({0.1, 0.4, 0.2, 0.3});
  CHECK(shares("greedy", scores) == std::vector<int>{0, 1000, 0, 0});
  CHECK(shares("random", scores) == std::vector<int>{100, 400, 200, 300});
  CHECK(shares("top_k=1", scores) == std::vector<int>{0, 1000, 0, 0});
  CHECK(shares("top_k=2", scores) == std::vector<int>{0, 571, 0, 429});
  CHECK(shares("top_k=100", scores) == std::vector<int>{100, 400, 200, 300});
  // Kept while those before are at most p in sum.
  CHECK(shares("top_p=0.3", scores) == std::vector<int>{0, 1000, 0, 0});
  CHECK(shares("top_p=0.45", scores) == std::vector<int>{0, 571, 0, 429});
  CHECK(shares("top_p=1", scores) == std::vector<int>{100, 400, 200, 300});
  // Of the two largest at most.
  CHECK(shares("top_p=1,2", scores) == std::vector<int>{0, 571, 0, 429});
  CHECK(shares("top_p=0.3,2", scores) == std::vector<int>{0, 1000, 0, 0});
  // Squares of the probabilities.
  CHECK(shares("random", scores, 0.5) == std::vector<int>{33, 534, 133, 300});
  // Of equal ones the lowest id.
  CHECK(shares("greedy", logs({0.25, 0.25, 0.25, 0.25})) == std::vector<int>{1000, 0, 0, 0});
  CHECK(shares("top_k=2", logs({0.25, 0.25, 0.25, 0.25})) == std::vector<int>{500, 500, 0, 0});
  CHECK(shares("random", {kNever, 0, kNever, 0}) == std::vector<int>{0, 500, 0, 500});
  CHECK(sample_id(parse_sampler("random"), scores, 1 - 1e-17) == 3);
}

TEST_CASE("the names of samplers") {
  CHECK(parse_sampler("top_k").count == 5);
  CHECK(parse_sampler("top_p").share == 0.1);
  CHECK(parse_sampler("beam=3").count == 3);
  for (const char* text : {"", "top", "greedy=1", "top_k=", "top_k=0", "top_k=x", "top_k=1.5",
                           "top_p=0", "top_p=1.1", "top_p=nan", "top_p=0.5,", "top_p=,5",
                           "top_p=0.5,0", "contrastive=4,", "beam=-1", "beam=2 "}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_sampler(text), ConfigError);
  }
}

TEST_CASE("numbers of samples are uniform, and others for each seed, sample and position") {
  double sum = 0;
  std::vector<double> all;
  for (int64_t i = 0; i < 1000; ++i) {
    all.push_back(sampling_number(1, i % 10, i / 10));
    sum += all.back();
  }
  CHECK(std::abs(sum / 1000 - 0.5) < 0.03);
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  CHECK(sampling_number(1, 0, 0) != sampling_number(2, 0, 0));
}

TEST_CASE("beams find the likeliest text when there are enough of them") {
  constexpr size_t kIds = 3, kSteps = 4, kBeams = 27;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Table table = random_table(seed, kIds);
    double best = -std::numeric_limits<double>::infinity();
    for (size_t text = 0; text < 81; ++text) {  // all of them, from id 0 on
      double score = 0;
      for (size_t step = 0, rest = text, id = 0; step < kSteps; ++step, rest /= kIds) {
        score += log_probability(table[id], rest % kIds);
        id = rest % kIds;
      }
      best = std::max(best, score);
    }
    std::vector<Beam> beams(kBeams);
    std::vector<size_t> last(kBeams);
    for (size_t step = 0; step < kSteps; ++step) {
      std::vector<float> scores;
      for (const size_t id : last)
        scores.insert(scores.end(), table[id].begin(), table[id].end());
      const auto steps = beam_step(parse_sampler("beam"), beams, scores, step == 0);
      for (size_t row = 0; row < kBeams; ++row) {
        beams[row] = steps[row].beam;
        last[row] = static_cast<size_t>(steps[row].id);
      }
    }
    CHECK(beams[0].score == doctest::Approx(best).epsilon(1e-6));
  }
}

TEST_CASE("a beam that has ended keeps its score") {
  const std::vector<Beam> beams = {{-1, true}, {-0.5, false}};
  const auto steps = beam_step(parse_sampler("beam=2"), beams, logs({0.5, 0.5, 0.5, 0.5}), false);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].parent == 0);
  CHECK(steps[0].id == -1);
  CHECK(steps[0].beam.has_ended);
  CHECK(steps[1].parent == 1);
  CHECK(steps[1].beam.score == doctest::Approx(-0.5 + std::log(0.5)));
}

namespace {

constexpr int64_t kWindow = 10, kNumIds = 7;

std::string yaml_of(const std::string& layers, const std::string& mesh,
                    const std::string& layout = "{}") {
  return R"(
dtype_policy: float64
distribution: {device_mesh: {shape: )" +
         mesh + R"(, axis_names: [data]}, layout_map: )" + layout + R"(}
model:
  layers:
    - Input: {shape: [10], dtype: int32}
    - TokenAndPositionEmbedding: {vocabulary_size: 7, sequence_length: 10, embedding_dim: 8}
)" + layers +
         R"(
compile: {optimizer: sgd, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 4}
)";
}
constexpr const char* kCausal = R"(
    - TransformerDecoder: {intermediate_dim: 16, num_heads: 2}
    - Dense: {units: 7, kernel_initializer: {RandomNormal: {stddev: 1.0}}}
)";
constexpr const char* kBothWays = R"(
    - TransformerEncoder: {intermediate_dim: 16, num_heads: 2}
    - Dense: {units: 7, kernel_initializer: {RandomNormal: {stddev: 1.0}}}
)";
constexpr const char* kOneOutput = R"(
    - Flatten
    - Dense: {units: 7, kernel_initializer: {RandomNormal: {stddev: 1.0}}}
)";

struct Texts {
  Texts(const std::string& layers, int64_t rows, const std::string& mesh = "[1]",
        bool reorders = false, const std::string& layout = "{}")
      : config(config_from(yaml_of(layers, mesh, layout))), num_rows(rows) {
    DataSpec spec;
    spec.inputs = {{{kWindow}, DType::kInt32}};
    spec.targets = Setup(config, nullptr).data().targets;
    engine = std::make_unique<Engine>(
        config, spec,
        EngineOptions{.num_workers = 1, .decode = {rows, {SequenceInput::kIds}, reorders}});
    model = generation_model(engine->setup(), 1);
    generation = std::make_unique<Generation>(*engine, model, rows);
  }

  // Scores behind a text by a forward pass over its last window.
  std::vector<float> scores_behind(std::vector<int32_t> text) {
    const auto length = std::min<int64_t>(static_cast<int64_t>(text.size()), kWindow);
    text.erase(text.begin(), text.end() - length);
    text.resize(kWindow);  // a causal model does not see what follows
    Dataset data = dataset_of(tensor_of<int32_t>(DType::kInt32, {1, kWindow}, text),
                              tensor_of<int32_t>(DType::kInt32, {1, kWindow}, text));
    const std::vector<int64_t> rows = {0};
    const HostTensor out = std::move(engine->predict_step({&data, rows})[0]);
    const int64_t first = model.gives_steps ? (length - 1) * kNumIds : 0;
    std::vector<float> scores;
    for (int64_t id = 0; id < kNumIds; ++id)
      scores.push_back(static_cast<float>(out.at(first + id)));
    return scores;
  }

  std::vector<int32_t> expected(std::vector<int32_t> text, const GenerationRequest& request,
                                int64_t sample, int64_t count) {
    std::vector<int32_t> out;
    for (int64_t i = 0; i < count; ++i) {
      out.push_back(
          sample_id(request.sampler, scores_behind(text),
                    sampling_number(request.seed, sample, static_cast<int64_t>(text.size()))));
      text.push_back(out.back());
    }
    return out;
  }

  Config config;
  int64_t num_rows;
  std::unique_ptr<Engine> engine;
  GenerationModel model;
  std::unique_ptr<Generation> generation;
};

GenerationRequest request_of(const std::string& sampler) {
  GenerationRequest request;
  request.sampler = parse_sampler(sampler);
  request.seed = 5;
  request.num_ids = kNumIds;
  return request;
}

const std::vector<int32_t> kLong = {1, 5, 2, 6, 0, 3, 3, 4, 1, 2, 6};  // longer than the window

}  // namespace

TEST_CASE("texts are those of forward passes over all of each text") {
  for (const char* mesh : {"[1]", "[2]", "[4]"}) {
    for (const char* sampler : {"greedy", "random", "top_k=3", "top_p=0.8"}) {
      CAPTURE(mesh);
      CAPTURE(sampler);
      Texts texts(kCausal, 4, mesh);
      REQUIRE(texts.generation->least_prompt() == 1);
      const GenerationRequest request = request_of(sampler);
      // Prompts of several lengths; some texts leave the window.
      const std::vector<GenerationRow> rows = {
          {{1}, 0, 14}, {{1, 2, 3}, 1, 5}, {{4, 4, 4, 4, 4}, 0, 1}, {kLong, 2, 3}};
      const std::vector<Generated> made = texts.generation->run(rows, request);
      for (size_t row = 0; row < rows.size(); ++row) {
        CAPTURE(row);
        CHECK(made[row].ids ==
              texts.expected(rows[row].prompt, request, rows[row].sample, rows[row].most_ids));
        CHECK(!made[row].has_stopped);
      }
    }
  }
}

TEST_CASE("text is generated without the capacities of experts, on every mesh") {
  const auto layers = [](const std::string& capacity) {
    return R"(
    - MultiHeadAttention: {num_heads: 2, key_dim: 4, call: {use_causal_mask: true}}
    - SparseMoE: {num_experts: 4, intermediate_dim: 12, kernel_initializer: {RandomNormal: {stddev: 0.5}})" +
           capacity + R"(}
    - Dense: {units: 7, kernel_initializer: {RandomNormal: {stddev: 1.0}}}
)";
  };
  const std::vector<GenerationRow> rows = {
      {{1}, 0, 14}, {{1, 2, 3}, 1, 5}, {{4, 4, 4, 4, 4}, 0, 1}, {kLong, 2, 3}};
  const GenerationRequest request = request_of("random");
  const auto made = [&](Texts texts) {
    CHECK(texts.generation->least_prompt() == 1);
    CHECK(texts.generation->window_reason(1) == "");
    std::vector<std::vector<int32_t>> out;
    for (const Generated& text : texts.generation->run(rows, request))
      out.push_back(text.ids);
    return out;
  };
  const auto expected = made(Texts(layers(""), 4));
  for (const char* mesh : {"[1]", "[2]", "[4]"}) {
    for (const char* layout : {"{}", "expert"}) {
      CAPTURE(mesh);
      CAPTURE(layout);
      CHECK(made(Texts(layers(", capacity_factor: 0.5"), 4, mesh, false, layout)) == expected);
    }
  }
}

TEST_CASE("models without incremental steps read the last window for each id") {
  for (const char* layers : {kBothWays, kOneOutput}) {
    CAPTURE(layers);
    Texts texts(layers, 2);
    CHECK(texts.generation->least_prompt() == kWindow);
    CHECK(texts.generation->window_reason(1) != "");
    const GenerationRequest request = request_of("random");
    const std::vector<GenerationRow> rows = {{kLong, 0, 4}, {kLong, 1, 6}};
    const std::vector<Generated> made = texts.generation->run(rows, request);
    for (size_t row = 0; row < rows.size(); ++row)
      CHECK(made[row].ids ==
            texts.expected(rows[row].prompt, request, rows[row].sample, rows[row].most_ids));
  }
}

TEST_CASE("stop ids and complete texts end a row, which the others do not notice") {
  Texts texts(kCausal, 2);
  GenerationRequest request = request_of("random");
  const std::vector<GenerationRow> rows = {{{1}, 0, 9}, {{1}, 1, 9}};
  const std::vector<Generated> whole = texts.generation->run(rows, request);
  request.stop_ids = {whole[0].ids[2]};
  const auto cut_at = [&](std::vector<int32_t> ids) {
    const auto stop = std::find(ids.begin(), ids.end(), request.stop_ids[0]);
    ids.erase(stop == ids.end() ? stop : stop + 1, ids.end());
    return ids;
  };
  const std::vector<Generated> made = texts.generation->run(rows, request);
  for (size_t row = 0; row < rows.size(); ++row) {
    CHECK(made[row].ids == cut_at(whole[row].ids));
    CHECK(made[row].has_stopped == (made[row].ids.back() == request.stop_ids[0]));
  }
  request.stop_ids.clear();
  request.is_complete = [](std::span<const int32_t> ids) { return ids.size() == 4; };
  std::vector<int32_t> live;
  request.on_id = [&](int32_t id) { live.push_back(id); };
  const std::vector<Generated> four = texts.generation->run(rows, request);
  CHECK(four[0].ids.size() == 4);
  CHECK(four[0].has_stopped);
  CHECK(live == four[0].ids);
}

TEST_CASE("beams of a model: the likeliest of all texts, and caches follow their rows") {
  constexpr int kBeams = 49, kSteps = 3;  // all texts of two ids
  Texts texts(kCausal, kBeams, "[1]", true);
  const GenerationRequest request = request_of("beam=49");
  const std::vector<int32_t> prompt = {3, 1};
  std::vector<int32_t> best;
  double best_score = -std::numeric_limits<double>::infinity();
  for (int32_t text = 0; text < kNumIds * kNumIds * kNumIds; ++text) {
    std::vector<int32_t> ids = prompt;
    double score = 0;
    for (int32_t step = 0, rest = text; step < kSteps; ++step, rest /= kNumIds) {
      score += log_probability(texts.scores_behind(ids), static_cast<size_t>(rest % kNumIds));
      ids.push_back(rest % kNumIds);
    }
    if (score > best_score) {
      best_score = score;
      best.assign(ids.begin() + 2, ids.end());
    }
  }
  const std::vector<GenerationRow> rows(kBeams, {prompt, 0, kSteps});
  CHECK(texts.generation->run(rows, request)[0].ids == best);
}

TEST_CASE("models that are no language models are refused") {
  const auto says = [](const std::string& model, const std::string& part) {
    const Config config =
        config_from("model:\n  layers:\n" + model + "compile: {optimizer: sgd, loss: mse}\n");
    const Setup setup(config, nullptr);
    try {
      generation_model(setup, 1);
      FAIL("accepted");
    } catch (const ConfigError& error) {
      CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
    }
  };
  says("    - Input: {shape: [4]}\n    - Dense: {units: 3}\n", "its input is float32 (None, 4)");
  says(
      "    - Input: {shape: [4], dtype: int32}\n    - Embedding: {input_dim: 3, output_dim: 2}\n"
      "    - AveragePooling1D: {pool_size: 2}\n",
      "of (None, 4) steps it makes (None, 2, 2)");
}
