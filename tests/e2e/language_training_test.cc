// What training a language model shows: tokens a second, validations within an epoch, texts that
// the model continues; none of them changes what is trained.
#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "outcome.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

constexpr const char* kLetters = R"(
data:
  train: {source: text, path: t.txt, sequence_length: 12, stride: 3, target: sequence, slice: "[:80%]"}
  validation: {source: text, path: t.txt, slice: "[80%:]"}
model:
  layers:
    - Input: {shape: [12], dtype: int32}
    - TokenAndPositionEmbedding: {vocabulary_size: 16, sequence_length: 12, embedding_dim: 16}
    - TransformerDecoder: {name: decoder, intermediate_dim: 32, num_heads: 2}
    - Dense: {units: 16}
compile:
  optimizer: {Adam: 0.01}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16, epochs: 3}
checkpoint: {every: 5 steps}
seed: 3
)";
const std::string kValidation = "callbacks+={StepValidation: {every: 4}}";
const std::string kSamples =
    "callbacks+={TextSamples: {prompts: [one t, two], every: 6, max_new_tokens: 8}}";

struct Letters {
  Letters() {
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += "one two one two\nübers meer\n";
    folder.write("t.txt", text);
    folder.write("c.yaml", kLetters);
  }
  Result train(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train", "c.yaml"});
    const Result result = meshtrain(std::move(words), folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return result;
  }
  // Of one kind, without what depends on the time.
  std::string events(const std::string& run, const std::string& kind) const {
    std::string out;
    for (const std::string& line : lines_of(folder.read(run + "/metrics.jsonl"))) {
      nlohmann::json event = parse_json(line);
      for (const char* key : {"seconds", "ms_per_step", "tokens_per_second"})
        event.erase(key);
      out += event.at("event") == kind ? json_text(event) + "\n" : "";
    }
    return out;
  }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("validations and texts between steps leave training as it is") {
  const Letters letters;
  const Result plain = letters.train({"-o", "plain"});
  const Result both = letters.train({"-o", "both", kValidation, kSamples});
  CHECK(outcome_of(letters.folder.file("both")) == outcome_of(letters.folder.file("plain")));
  CHECK(letters.events("plain", "validation") == "");
  const std::vector<std::string> found = lines_of(letters.events("both", "validation"));
  // 18 steps an epoch: step 36 ends one, and has the epoch's own validation.
  REQUIRE(found.size() == 12);
  CHECK(parse_json(found[4]).at("epoch") == 2);
  CHECK(parse_json(found[4]).at("step") == 2);
  CHECK(parse_json(found[4]).at("logs").contains("val_accuracy"));
  CHECK(contains(both.out, "step 4 - val_accuracy: "));
  CHECK(contains(plain.out, " tokens/s - accuracy: "));
  CHECK(
      contains(letters.folder.read("both/log.txt"), "validation step 4 of epoch 1 val_accuracy "));
  CHECK(contains(letters.folder.read("both/report.html"), "tokens a second, last epoch"));

  letters.folder.write("hardware.yaml", "cpu: {peak: {float32: 1.0e+9}}\n");
  const Result rated = letters.train({"-o", "rated", "plan.hardware=hardware.yaml"});
  CHECK(contains(rated.out, "% - accuracy: "));
  CHECK(contains(letters.folder.read("rated/metrics.jsonl"), R"(,"mfu":)"));
  CHECK(!contains(letters.folder.read("plain/metrics.jsonl"), R"(,"mfu":)"));

  // The last epoch's texts are those of `generate`.
  const Result texts =
      letters.train({"-o", "texts",
                     "callbacks+={TextSamples: {prompts: [one t], max_new_tokens: 8, verbose: 1, "
                     "sampler: random}}"});
  const Result again = meshtrain(
      {"generate", "texts", "-p", "one t", "--max-new-tokens", "8", "--sampler", "random", "-q"},
      letters.folder.path());
  const std::string file = letters.folder.read("texts/samples.txt");
  CHECK(file.ends_with("=== epoch 3\n" + again.out));
  CHECK(contains(texts.out, "=== epoch 3\n" + again.out));

  // Every id of the text ends it.
  const Result ended =
      letters.train({"-o", "ended", "fit.epochs=1", "model.token_ids.eos_token_id=[0, 1, 2, 3, 4]",
                     "callbacks+={TextSamples: {prompts: [one t], max_new_tokens: 8}}"});
  const std::string lines = letters.folder.read("ended/samples.txt");
  CHECK_MESSAGE(lines.size() < std::string("=== epoch 1\none t12345678\n").size(), lines);
}

TEST_CASE("evaluate shows perplexity and bits per byte of a language model") {
  const Letters letters;
  letters.train({"-q", "-o", "run", "fit.epochs=1", "~data.validation"});
  const auto logs = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"evaluate", "run", "--log-format", "json", "-q"});
    const Result result = meshtrain(std::move(words), letters.folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return parse_json(lines_of(result.out).back()).at("logs");
  };
  const nlohmann::json own = logs({});
  const double loss = own.at("loss");
  CHECK(own.at("perplexity").get<double>() == doctest::Approx(std::exp(loss)));
  // A line of this text has one character of two bytes.
  const double bytes = 28.0 / 27;
  CHECK(own.at("bits_per_byte").get<double>() == doctest::Approx(loss / std::log(2) / bytes));
  CHECK(logs({"--mesh", "4"}).at("perplexity").get<double>() ==
        doctest::Approx(own.at("perplexity").get<double>()));
  const nlohmann::json asked =
      logs({"compile.metrics=[{Perplexity: {from_logits: true, name: p}}]"});
  CHECK(!asked.contains("perplexity"));
  CHECK(asked.at("p") == own.at("perplexity"));
  // A penalty is part of the loss, and not of these.
  const nlohmann::json penalized = logs({"model.layers.3.Dense.activity_regularizer={L2: 1.0}"});
  CHECK(penalized.at("perplexity") == own.at("perplexity"));
  CHECK(penalized.at("loss") > loss + 1);
}

TEST_CASE("killed runs resume with the same validations and texts, also on another mesh") {
  const Letters letters;
  letters.train({"-o", "whole", kValidation, kSamples});
  const std::vector<std::string> words = {"train",    "c.yaml",    "-o",    "run",
                                          "--resume", kValidation, kSamples};
  int kills = 0;
  for (const char* shown : {"step 8 -", "step 28 -"}) {
    Command command{.args = words, .folder = letters.folder.path()};
    command.watch = [shown](const std::string& out, const std::string&, int pid) {
      return contains(out, shown) && kill(pid, SIGKILL) == 0;
    };
    kills += run(command).exit_code == 128 + SIGKILL ? 1 : 0;
  }
  CHECK(kills == 2);
  REQUIRE(meshtrain(words, letters.folder.path()).exit_code == 0);
  CHECK(outcome_of(letters.folder.file("run")) == outcome_of(letters.folder.file("whole")));
  CHECK(letters.events("run", "validation") == letters.events("whole", "validation"));
  CHECK(letters.folder.read("run/samples.txt") == letters.folder.read("whole/samples.txt"));

  const std::string texts = letters.folder.read("whole/samples.txt");
  for (const char* mesh : {"2", "2x2"}) {
    letters.train({"-o", std::string("mesh") + mesh, "--mesh", mesh, kValidation, kSamples});
    CHECK(letters.folder.read(std::string("mesh") + mesh + "/samples.txt") == texts);
  }
}

TEST_CASE("nanoGPT's config: killed and resumed on another mesh with the same weights") {
  const TemporaryFolder folder;
  const auto words = [](std::vector<std::string> more) {
    const std::string config =
        std::string(MESHTRAIN_SOURCE_DIR) + "/configs/nanogpt_shakespeare.yaml";
    std::vector<std::string> all = {"train",          config,         "vars.width=16",
                                    "vars.heads=2",   "vars.depth=1", "vars.context=16",
                                    "vars.steps=140", "fit.epochs=4", "checkpoint.every=3 steps"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  REQUIRE(meshtrain(words({"-o", "whole"}), folder.path()).exit_code == 0);
  Command killed{.args = words({"-o", "gpt"}), .folder = folder.path()};
  killed.watch = [](const std::string& out, const std::string&, int pid) {
    return contains(out, "Epoch 3/4") && kill(pid, SIGKILL) == 0;
  };
  REQUIRE(run(killed).exit_code == 128 + SIGKILL);
  const auto resumed = [&](const char* epochs, const char* mesh) {
    const Result result = meshtrain({"resume", "gpt", epochs, "--mesh", mesh}, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return folder.read("gpt/weights.safetensors");
  };
  // Nothing is left to train: the weights are those of the checkpoint.
  const std::string weights = resumed("fit.epochs=2", "1x2");
  CHECK(resumed("fit.epochs=2", "2x1") == weights);
  CHECK(resumed("fit.epochs=2", "2x2") == weights);
  CHECK(resumed("fit.epochs=4", "2x1") != weights);
  const auto loss_of = [&](const std::string& run) {
    const std::vector<std::string> lines = lines_of(folder.read(run + "/metrics.jsonl"));
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      const nlohmann::json event = parse_json(*line);
      if (event.at("event") == "evaluate")
        return event.at("logs").at("loss").get<double>();
    }
    return 0.0;
  };
  CHECK(loss_of("gpt") == doctest::Approx(loss_of("whole")).epsilon(1e-5));
}

TEST_CASE("StepValidation and TextSamples refuse what they cannot do") {
  const Letters letters;
  const auto refuses = [&](std::vector<std::string> words, const std::string& text) {
    words.insert(words.begin(), {"train", "c.yaml", "-o", "none"});
    const Result result = meshtrain(std::move(words), letters.folder.path());
    CHECK(result.exit_code != 0);
    CHECK_MESSAGE(contains(result.err, text), result.err);
  };
  refuses({"~data.validation", kValidation}, "`StepValidation` has no data to validate on");
  refuses({"callbacks+={StepValidation: {every: 0}}"}, "`every`");
  const std::string unknown = "callbacks+={TextSamples: {prompts: [one], sampler: topk}}";
  refuses({unknown}, "sampler `topk`: there is no such sampler");
  const Result checked = meshtrain({"validate", "c.yaml", unknown}, letters.folder.path());
  CHECK(checked.exit_code == 2);
  CHECK_MESSAGE(contains(checked.err, "sampler `topk`: there is no such sampler"), checked.err);
  refuses({"callbacks+={TextSamples: {prompts: [one], sampler: greedy, samples: 2}}"},
          "`greedy` gives one text, and `samples` is 2");
  refuses({"callbacks+={TextSamples: {prompts: [one], every: 30 min}}"}, "write epoch, 2 epochs");
  refuses({"callbacks+={TextSamples: {prompts: [XY]}}"},
          "`prompt 1`: offset 0: the character `X` is not in the vocabulary");
  refuses({"callbacks+={TextSamples: {prompts: [one], tokenizer: none}}"}, "none");
}

}  // namespace meshtrain
