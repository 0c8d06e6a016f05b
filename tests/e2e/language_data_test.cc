// Data of language models: masked tokens, texts of unequal length, steps in head-tail order.
#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "outcome.h"
#include "support/golden.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

const std::string kTokenizers = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/";

std::string citizens_text() {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += "First Citizen:\nBefore we proceed any further, hear me speak.\nAll:\nSpeak, speak.\n";
  }
  return text;
}

constexpr const char* kMasked = R"(
data:
  train: {source: text, path: t.txt, sequence_length: 16, stride: 8, target: null, slice: "[:80%]"}
  validation: {source: text, path: t.txt, slice: "[80%:]"}
  transform:
    - MaskedLMMaskGenerator:
        {vocabulary_size: 40, mask_selection_rate: 0.25, mask_token_id: 39, mask_selection_length: 4}
model:
  layers:
    - Input: {name: token_ids, shape: [16], dtype: int32}
    - Input: {name: mask_positions, shape: [4], dtype: int32}
    - TokenAndPositionEmbedding: {name: x, vocabulary_size: 40, sequence_length: 16, embedding_dim: 16, inputs: token_ids}
    - TransformerEncoder: {name: encoder, intermediate_dim: 32, num_heads: 2}
    - MaskedLMHead: {name: head, vocabulary_size: 40, inputs: [encoder, mask_positions]}
compile:
  optimizer: {Adam: 0.01}
  loss: {SparseCategoricalCrossentropy: {from_logits: true, reduction: mean_with_sample_weight}}
  weighted_metrics: [accuracy]
fit: {batch_size: 16, epochs: 4}
checkpoint: {every: 3 steps}
seed: 3
)";

std::vector<double> losses(const TemporaryFolder& folder, const std::string& run) {
  std::vector<double> out;
  for (const std::string& line : lines_of(folder.read(run + "/metrics.jsonl"))) {
    const nlohmann::json event = parse_json(line);
    if (event.at("event") == "epoch") {
      out.push_back(event.at("logs").at("loss"));
      out.push_back(event.at("logs").at("val_loss"));
    }
  }
  return out;
}

Result trained(const TemporaryFolder& folder, std::vector<std::string> words) {
  words.insert(words.begin(), "train");
  const Result result = meshtrain(std::move(words), folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return result;
}

}  // namespace

TEST_CASE("a masked language model learns, on each mesh alike, and a killed run hides the same") {
  const TemporaryFolder folder;
  folder.write("t.txt", citizens_text());
  folder.write("c.yaml", kMasked);
  trained(folder, {"c.yaml", "-o", "whole"});
  const std::vector<double> expected = losses(folder, "whole");
  REQUIRE(expected.size() == 8);
  CHECK(expected[6] < 0.8 * expected[0]);
  CHECK(expected[7] < 0.8 * expected[1]);
  trained(folder, {"c.yaml", "-o", "split", "--mesh", "2x2", "distribution.layout_map=megatron",
                   "distribution.type=ModelParallel"});
  const std::vector<double> split = losses(folder, "split");
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(split[i] == doctest::Approx(expected[i]).epsilon(1e-4));
  }

  const std::vector<std::string> words = {"train", "c.yaml", "-o", "run", "--resume"};
  Command command{.args = words, .folder = folder.path()};
  command.watch = [](const std::string& out, const std::string&, int pid) {
    return contains(out, "Epoch 2/4") && kill(pid, SIGKILL) == 0;
  };
  CHECK(run(command).exit_code == 128 + SIGKILL);
  REQUIRE(meshtrain(words, folder.path()).exit_code == 0);
  CHECK(outcome_of(folder.file("run")) == outcome_of(folder.file("whole")));

  const Result targets =
      meshtrain({"validate", "c.yaml", "data.train.target=sequence", "--data"}, folder.path());
  CHECK(targets.exit_code != 0);
  CHECK(contains(targets.err + targets.out, "write `target: null` in the source"));
}

TEST_CASE("a language model of lines: trained, evaluated and continued from the run alone") {
  const TemporaryFolder folder;
  folder.write("lines.txt", citizens_text());
  folder.write("more.txt", "All:\nSpeak, speak.\n");
  std::filesystem::copy(kTokenizers + "gpt2", folder.path() + "/gpt2",
                        std::filesystem::copy_options::recursive);
  folder.write("c.yaml", R"(
data:
  train: {source: lines, path: lines.txt, vocabulary: {tokenizer: gpt2}, max_length: 12,
          start_token: "<|endoftext|>", end_token: "<|endoftext|>", pad_token: "<|endoftext|>"}
  test: {source: lines, path: more.txt}
model:
  layers:
    - Input: {name: token_ids, shape: [12], dtype: int32}
    - Input: {name: padding_mask, shape: [12], dtype: int32}
    - TokenAndPositionEmbedding: {name: x, vocabulary_size: =vocabulary_size(), sequence_length: 12, embedding_dim: 16, inputs: token_ids}
    - TransformerDecoder: {name: decoder, intermediate_dim: 32, num_heads: 2, inputs: {decoder_sequence: x, decoder_padding_mask: padding_mask}}
    - Dense: {name: logits, units: =vocabulary_size()}
compile:
  optimizer: {Adam: 0.02}
  loss: {SparseCategoricalCrossentropy: {from_logits: true, reduction: mean_with_sample_weight}}
  weighted_metrics: [accuracy]
fit: {batch_size: 16, epochs: 12}
seed: 3
)");
  trained(folder, {"c.yaml", "-o", "run"});
  std::filesystem::remove_all(folder.path() + "/gpt2");
  std::filesystem::remove(folder.path() + "/lines.txt");
  const Result evaluated =
      meshtrain({"evaluate", "run", "--log-format", "json", "-q"}, folder.path());
  REQUIRE_MESSAGE(evaluated.exit_code == 0, evaluated.err);
  const nlohmann::json logs = parse_json(lines_of(evaluated.out).back()).at("logs");
  CHECK(logs.at("loss").get<double>() < 3);
  CHECK(logs.at("perplexity").get<double>() ==
        doctest::Approx(std::exp(logs.at("loss").get<double>())));
  // The 17 bytes of both lines are those of a whole number of tokens, of which each line has an
  // end.
  const double bits = std::log2(logs.at("perplexity").get<double>());
  const double tokens = 17 * logs.at("bits_per_byte").get<double>() / bits;
  CHECK(tokens > 2);
  CHECK(tokens == doctest::Approx(std::round(tokens)));
  const Result text = meshtrain(
      {"generate", "run", "-p", "Before we", "--sampler", "greedy", "--max-new-tokens", "10", "-q"},
      folder.path());
  REQUIRE_MESSAGE(text.exit_code == 0, text.err);
  CHECK(text.out.starts_with("Before we proceed"));
  const Result predicted =
      meshtrain({"predict", "run", "-i", "more.txt", "-o", "p.npy", "-q"}, folder.path());
  CHECK_MESSAGE(predicted.exit_code == 0, predicted.err);
}

TEST_CASE("a classifier of a column of texts: trained on a table, and predicts a new one") {
  const TemporaryFolder folder;
  std::string table = "review,stars\n";
  for (int i = 0; i < 40; ++i) {
    table += i % 2 == 0 ? "\"Before we proceed, hear me speak\",good\n" : "First Citizen,bad\n";
  }
  folder.write("reviews.csv", table);
  folder.write("new.csv", "review\n\"Before we proceed, hear me speak\"\nFirst Citizen\n");
  std::filesystem::copy(kTokenizers + "bert_files", folder.path() + "/bert",
                        std::filesystem::copy_options::recursive);
  folder.write("c.yaml", R"(
data:
  train:
    source: csv
    path: reviews.csv
    label: stars
    features: {token_ids: review}
    preprocessing:
      - Tokenizer: {column: review, vocabulary: {tokenizer: bert}, max_length: 10, start_token: "[CLS]", end_token: "[SEP]"}
model:
  layers:
    - Input: {name: token_ids, shape: [10], dtype: int32}
    - Input: {name: padding_mask, shape: [10], dtype: int32}
    - TokenAndPositionEmbedding: {name: x, vocabulary_size: =vocabulary_size("review"), sequence_length: 10, embedding_dim: 16, inputs: token_ids}
    - TransformerEncoder: {name: encoder, intermediate_dim: 32, num_heads: 2, inputs: {inputs: x, padding_mask: padding_mask}}
    - Lambda: {name: first, function: "=x[:, 0]", inputs: encoder}
    - Dense: {name: classes, units: =num_classes()}
compile:
  optimizer: {Adam: 0.01}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 8, epochs: 6}
evaluate: {"on": train}
seed: 3
)");
  const Result result = trained(folder, {"c.yaml", "-o", "run", "--log-format", "json", "-q"});
  CHECK(parse_json(lines_of(result.out).back()).at("logs").at("accuracy") == 1.0);
  std::filesystem::remove_all(folder.path() + "/bert");
  std::filesystem::remove(folder.path() + "/reviews.csv");
  const Result predicted =
      meshtrain({"predict", "run", "-i", "new.csv", "-o", "-", "-q"}, folder.path());
  REQUIRE_MESSAGE(predicted.exit_code == 0, predicted.err);
  const std::vector<std::string> lines = lines_of(predicted.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1].starts_with("good,"));
  CHECK(lines[2].starts_with("bad,"));
}

TEST_CASE("head_tail changes neither losses nor predictions nor texts") {
  const TemporaryFolder folder;
  folder.write("t.txt", citizens_text());
  folder.write("c.yaml", R"(
dtype_policy: float64
distribution: {type: ModelParallel, device_mesh: {shape: [1, 2], axis_names: [data, seq]}, layout_map: context}
data:
  train: {source: text, path: t.txt, sequence_length: 16, stride: 8, slice: "[:80%]"}
  validation: {source: text, path: t.txt, slice: "[80%:]"}
model:
  layers:
    - Input: {name: ids, shape: [16], dtype: int32}
    - TokenAndPositionEmbedding: {name: x, vocabulary_size: 40, sequence_length: 16, embedding_dim: 16}
    - TransformerDecoder: {name: decoder, intermediate_dim: 32, num_heads: 2}
    - Dense: {name: logits, units: 40}
compile:
  optimizer: {Adam: 0.01}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 16, epochs: 2}
callbacks: [{TextSamples: {prompts: [First], max_new_tokens: 20, sampler: contrastive=3}}]
seed: 3
)");
  trained(folder, {"c.yaml", "-o", "plain"});
  trained(folder, {"c.yaml", "-o", "ordered", "data.head_tail=2"});
  const std::vector<double> plain = losses(folder, "plain"), ordered = losses(folder, "ordered");
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(ordered[i] == doctest::Approx(plain[i]).epsilon(1e-9));
  }
  CHECK(folder.read("ordered/samples.txt") == folder.read("plain/samples.txt"));
  for (const char* run : {"plain", "ordered"}) {
    const Result predicted = meshtrain(
        {"predict", run, "-i", "t.txt", "-o", std::string(run) + ".csv", "-q"}, folder.path());
    REQUIRE_MESSAGE(predicted.exit_code == 0, predicted.err);
  }
  const std::vector<std::string> a = lines_of(folder.read("plain.csv")),
                                 b = lines_of(folder.read("ordered.csv"));
  REQUIRE(a.size() == b.size());
  for (size_t row = 1; row < a.size(); ++row) {
    std::vector<double> x, y;
    for (const auto& [line, to] : {std::pair(&a[row], &x), std::pair(&b[row], &y)}) {
      for (size_t at = 0; at < line->size(); at = std::min(line->find(',', at), line->size()) + 1) {
        to->push_back(std::atof(line->c_str() + at));
      }
    }
    REQUIRE(x.size() == y.size());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, std::abs(x[i] - y[i]));
    }
    CHECK(worst < 1e-6);
  }
  for (const auto& [word, message] :
       {std::pair("data.head_tail=3", "cuts samples in 6 chunks"),
        std::pair("model.layers[2]={LSTM: {units: 16, return_sequences: true}}", "joins steps"),
        std::pair("model.layers[2]={SparseMoE: {name: moe, num_experts: 2, intermediate_dim: 8, "
                  "capacity_factor: 1}}",
                  "error[E113]: `capacity_factor` of layer `moe` (SparseMoE) gives the places of "
                  "an expert to the first steps, and `data.head_tail: 2` changes")}) {
    const Result refused =
        meshtrain({"validate", "c.yaml", "data.head_tail=2", word, "--data"}, folder.path());
    CHECK(refused.exit_code != 0);
    CHECK_MESSAGE(contains(refused.err + refused.out, message), refused.err, refused.out);
  }
}

}  // namespace meshtrain
