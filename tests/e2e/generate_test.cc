// `meshtrain generate`: texts of a model of characters and of one of tokens, and what is refused.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>

#include "base/json.h"
#include "command.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

constexpr const char* kRhymes = R"(
data: {train: {source: text, path: t.txt, sequence_length: 12, stride: 3, target: sequence}}
model:
  layers:
    - Input: {shape: [12], dtype: int32}
    - TokenAndPositionEmbedding: {vocabulary_size: 16, sequence_length: 12, embedding_dim: 16}
    - TransformerDecoder: {intermediate_dim: 32, num_heads: 2}
    - Dense: {units: 16}
compile: {optimizer: {Adam: 0.01}, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 16, epochs: 8}
seed: 3
run: {dir: run}
)";

std::string rhyme() {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "one two one two\nübers meer\n";
  return text;
}

struct Trained {
  Trained() {
    folder.write("t.txt", rhyme());
    folder.write("c.yaml", kRhymes);
    const Result result = meshtrain({"train", "c.yaml", "-q"}, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    std::filesystem::remove(folder.file("t.txt"));  // the run knows its characters
  }
  Result generate(std::vector<std::string> words, const std::string& input = "") const {
    words.insert(words.begin(), {"generate", "run"});
    return run(Command{.args = std::move(words), .folder = folder.path(), .input = input});
  }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("generate: the same text on every mesh; samples, stops, files, JSON") {
  const Trained trained;
  const Result greedy =
      trained.generate({"-p", "one t", "--sampler", "greedy", "--max-new-tokens", "7", "-q"});
  CHECK(greedy.err == "");
  CHECK(greedy.out == "one two one \n");
  const std::vector<std::string> words = {
      "-p", "ü",         "-p",     "one two",      "--samples", "2", "--rows",
      "3",  "--sampler", "random", "--max-length", "30",        "-q"};
  const Result one = trained.generate(words);
  CHECK(one.exit_code == 0);
  for (const char* mesh : {"2", "4"}) {
    std::vector<std::string> there = words;
    there.insert(there.end(), {"--mesh", mesh});
    CHECK(trained.generate(there).out == one.out);
  }
  // A text does not depend on those beside it.
  const Result alone =
      trained.generate({"-p", "one two", "--sampler", "random", "--max-length", "30", "-q"});
  CHECK(contains(one.out, "---\n" + alone.out + "---\n"));
  std::vector<std::string> one_by_one = words;  // and not on how many are computed at once
  REQUIRE(one_by_one[6] == "--rows");
  one_by_one[7] = "1";
  CHECK(trained.generate(one_by_one).out == one.out);
  const auto hot = [&](const char* seed) {  // ids that are all but equally likely
    return trained
        .generate({"-p", "one two", "--sampler", "random", "--temperature", "20", "--max-length",
                   "60", "--seed", seed, "-q"})
        .out;
  };
  CHECK(hot("3") == hot("3"));
  CHECK(hot("3") != hot("4"));

  const Result stopped = trained.generate({"-p", "one t", "--sampler", "greedy", "--stop", "\n",
                                           "--format", "jsonl", "-o", "texts.jsonl"});
  CHECK(stopped.out == "");
  CHECK(contains(stopped.err, "run/weights.safetensors"));
  CHECK(contains(stopped.err, " ids in "));
  const nlohmann::json line = parse_json(trained.folder.read("texts.jsonl"));
  CHECK(line.at("prompt") == "one t");
  CHECK(line.at("text") == "wo one two");
  CHECK(line.at("ended") == "stop");
  const Result beams =
      trained.generate({"-p", "one t", "--sampler", "beam=3", "--max-new-tokens", "4", "-q"});
  CHECK(beams.out == "one two o\n");
  for (const char* mesh : {"1", "2", "4"}) {
    const Result contrastive = trained.generate({"-p", "one t", "--sampler", "contrastive=4,0.1",
                                                 "--max-new-tokens", "12", "--mesh", mesh, "-q"});
    CHECK(contrastive.err == "");
    CHECK(contrastive.out == "one two one two\no\n");
  }
  const Result lines = trained.generate(
      {"-i", "-", "--sampler", "greedy", "--max-new-tokens", "1", "-q"}, "one\r\n\ntw\n");
  CHECK(lines.out == "one \n---\ntwo\n");
  // What is shown as it comes has nothing of the stop.
  for (const char* stop : {"o", "one", "\n"}) {
    const std::vector<std::string> shown = {"-p",     "one t", "--sampler", "greedy",
                                            "--stop", stop,    "-q"};
    std::vector<std::string> as_lines = shown;
    as_lines.insert(as_lines.end(), {"--format", "jsonl"});
    const std::string text = parse_json(trained.generate(as_lines).out).at("text");
    CHECK(trained.generate(shown).out == "one t" + text + "\n");
  }
  // Prompts of other lengths than their neighbours.
  const Result mixed = trained.generate(
      {"-i", "-", "--sampler", "greedy", "--max-new-tokens", "2", "--rows", "2", "-q"},
      "one t\no\none two\n");
  CHECK(mixed.out == "one two\n---\none\n---\none two o\n");
  CHECK(trained.generate({"-p", "one", "-o", "none/x"}).exit_code == 74);
  const Result longer = trained.generate({"-p", "one", "--max-length", "20"});
  CHECK(
      contains(longer.err, "note: 12 ids are read anew for each id: the model has 12 positions\n"));
}

TEST_CASE("generate: an empty prompt begins with the start token; eos_token_id ends a text") {
  const Trained trained;
  const auto greedy = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--sampler", "greedy", "--max-new-tokens", "6", "-q"});
    const Result result = trained.generate(std::move(words));
    CHECK(result.err == "");
    return result.out;
  };
  // Id 0 is the end of a line.
  const std::string text = greedy({"-p", "\n"}).substr(1);
  CHECK(greedy({"-p", "", "model.token_ids.bos_token_id=0"}) == text);
  CHECK(greedy({"-p", "", "model.token_ids.bos_token_id=0", "data.train.document_separator=0"}) ==
        text);
  const Result outside = trained.generate({"-p", "", "model.token_ids.bos_token_id=1000"});
  CHECK(outside.exit_code == 3);
  CHECK(contains(outside.err, "error[E314]: prompt 1 is empty: the start token has the id 1000"));
  CHECK(greedy({"-p", "one t"}) == "one two one\n");
  CHECK(greedy({"-p", "one t", "model.token_ids.eos_token_id=[0, 1]"}) == "one two \n");
}

TEST_CASE("generate: each text is written as soon as it and those before it are there") {
  const Trained trained;
  std::string prompts;
  for (int i = 0; i < 3000; ++i)
    prompts += i % 5 == 0 ? "one two\n" : "one\n";
  trained.folder.write("prompts.txt", prompts);
  const std::string path = trained.folder.file("texts.txt");
  Command command{
      .args = {"generate", "run", "-i", "prompts.txt", "--rows", "2", "--sampler", "greedy", "-q"},
      .folder = trained.folder.path()};
  const auto interrupted = [&](const std::function<std::string(const std::string&)>& written) {
    command.watch = [&](const std::string& out, const std::string&, int pid) {
      if (!contains(written(out), "---\n"))
        return false;
      kill(pid, SIGINT);
      return true;
    };
    const Result result = run(command);
    CHECK(result.exit_code != 0);
    const std::string text = written(result.out);
    CHECK(text.starts_with("one two"));  // the first prompt, though it is the longer one
    CHECK(text.ends_with("\n"));
  };
  interrupted([](const std::string& out) { return out; });
  command.args.insert(command.args.end(), {"-o", "texts.txt"});
  interrupted([&](const std::string&) {
    return std::filesystem::exists(path) ? trained.folder.read("texts.txt") : "";
  });
}

TEST_CASE("generate: a prompt of packed documents is continued by its last one") {
  TemporaryFolder folder;
  folder.write("t.txt", rhyme());
  folder.write("c.yaml", R"(
data:
  train: {source: text, path: t.txt, sequence_length: 12, target: sequence, document_separator: 0}
model:
  layers:
    - Input: {name: ids, shape: [12], dtype: int32}
    - Input: {name: positions, shape: [12], dtype: int32}
    - Input: {name: segments, shape: [12], dtype: int32}
    - Embedding: {name: words, input_dim: 16, output_dim: 8, inputs: ids}
    - Embedding: {name: places, input_dim: 12, output_dim: 8, inputs: positions}
    - Add: {name: x, inputs: [words, places]}
    - MultiHeadAttention: {name: a, num_heads: 2, key_dim: 4, call: {use_causal_mask: true},
        inputs: {query: x, value: x, segments: segments, positions: positions}}
    - Dense: {units: 16}
compile: {optimizer: {Adam: 0.05}, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {epochs: 1}
run: {dir: run}
)");
  REQUIRE(meshtrain({"train", "c.yaml", "-q"}, folder.path()).exit_code == 0);
  const auto generate = [&](const std::string& prompt, const std::string& more = "seed=3") {
    return meshtrain({"generate", "run", "-p", prompt, more, "--sampler", "greedy", "-q",
                      "--max-new-tokens", "5"},
                     folder.path());
  };
  const std::string alone = generate("one t").out;
  CHECK(generate("meer\none t").out == "meer\n" + alone);
  const Result empty = generate("");
  CHECK(empty.exit_code == 2);
  CHECK_MESSAGE(contains(empty.err, "prompt 1 is empty, and the model has no start token"),
                empty.err);
  CHECK(contains(empty.err, "what follows `document_separator` has weight 0 in training"));
  const Result ended = generate("one\n");
  CHECK(ended.exit_code == 2);
  CHECK_MESSAGE(contains(ended.err, "ends with the end of a document, and the model has no start"),
                ended.err);
  CHECK(generate("one\n", "model.token_ids.bos_token_id=1").exit_code == 0);
}

TEST_CASE("generate: a stateful model reads each window anew") {
  const Trained trained;
  trained.folder.write("t.txt", rhyme());
  const std::vector<std::string> stateful = {
      "model.layers=[{Input: {shape: [12], dtype: int32, batch_size: 4}}, {Embedding: {input_dim: "
      "16, output_dim: 8}}, {LSTM: {units: 8, return_sequences: true, stateful: true}}, {Dense: "
      "{units: 16}}]",
      "fit.batch_size=4", "data.remainder=drop", "fit.epochs=1"};
  const auto train = [&](const std::string& run, std::vector<std::string> words) {
    words.insert(words.begin(), {"train", "c.yaml", "-q", "-o", run});
    words.insert(words.end(), stateful.begin(), stateful.end());
    const Result result = meshtrain(words, trained.folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.err);
  };
  train("plain", {});
  train("texts", {"callbacks+={TextSamples: {prompts: ['one two one ', 'two one two ', 'one two "
                  "one ', 'one two one '], every: 5, max_new_tokens: 3}}"});
  CHECK(trained.folder.read("plain/weights.safetensors") ==
        trained.folder.read("texts/weights.safetensors"));
  const std::vector<std::string> words = {
      "generate",     "plain",     "-p",           "one two one ",     "-p", "two one two ", "-p",
      "one two one ", "-p",        "one two one ", "--max-new-tokens", "6",  "--rows",       "4",
      "-q",           "--sampler", "greedy"};
  const Result result = meshtrain(words, trained.folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> lines = lines_of(result.out);
  CHECK(result.out.substr(0, result.out.find("---")) ==
        result.out.substr(result.out.rfind("---\n") + 4));
}

TEST_CASE("generate: a loss that is an expression does not matter") {
  const Trained trained;
  const std::vector<std::string> words = {"-p", "one t", "--sampler", "greedy", "--max-new-tokens",
                                          "7",  "-q"};
  std::vector<std::string> other = words;
  other.emplace_back("compile.loss=\"=mean(y_pred) * 0 + mean(cast(y_true, 'float32'))\"");
  CHECK(trained.generate(other).out == trained.generate(words).out);
  // Nor a head that says nothing of its numbers.
  other.back() = "~compile.loss";
  CHECK(trained.generate(other).out == trained.generate(words).out);
}

TEST_CASE("generate refuses what it cannot continue") {
  const Trained trained;
  const auto refuses = [&](std::vector<std::string> words, int code, const std::string& text) {
    const Result result = trained.generate(std::move(words));
    CHECK(result.exit_code == code);
    CHECK(result.out == "");
    CHECK_MESSAGE(contains(result.err, text), result.err);
  };
  refuses({}, 2, "error[E140]: `generate` needs a prompt");
  refuses({"-p", "one", "--sampler", "topk"}, 2, "--sampler `topk`: there is no such sampler");
  refuses({"-p", "one", "--sampler", "top_p=2"}, 2, "`2` is no number above 0, at most 1");
  refuses({"-p", "one", "--sampler", "contrastive=0"}, 2, "`0` is no whole number from 1 on");
  refuses({"-p", "one", "--sampler", "contrastive=5,2"}, 2, "`2` is no number from 0 to 1");
  refuses({"-p", "one", "--samples", "2", "--sampler", "beam"}, 2, "`beam` gives one text");
  refuses({"-p", "one", "--samples", "2", "--sampler", "contrastive"}, 2, "gives one text");
  refuses({"-p", "one", "--max-length", "3", "--max-new-tokens", "3"}, 2, "are both given");
  refuses({"-p", "one", "--temperature", "0"}, 2, "--temperature");
  refuses({"-p", ""}, 2, "prompt 1 is empty, and the model has no start token");
  refuses({"-p", "one", "-p", "XY"}, 3,
          "error[E314]: `prompt 2`: offset 0: the character `X` is not in the vocabulary");
  refuses({"-i", "none.txt"}, 3, "error[E300]: cannot open `none.txt`");
  refuses({"-p", "one", "--tokenizer", "none"}, 2, "the ids of its own characters");
  refuses({"-p", "one", "--tokenizer", "none", "~data"}, 3, "none");
  trained.folder.write("dense.yaml", R"(
model: {layers: [{Input: {shape: [4]}}, {Dense: {units: 2}}]}
compile: {loss: mse}
)");
  const Result dense = meshtrain({"generate", "dense.yaml", "-p", "a"}, trained.folder.path());
  CHECK(dense.exit_code == 3);
  CHECK(contains(dense.err, "this model does not continue texts: its input is float32 (None, 4)"));
}

}  // namespace meshtrain
