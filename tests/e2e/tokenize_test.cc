// `meshtrain data tokenize`, and a run on its ids and on the text itself.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "command.h"
#include "support/golden.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

const std::string kTokenizer = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/gpt2";

constexpr const char* kTokenModel = R"(
model:
  layers:
    - Input: {name: ids, shape: [8], dtype: int32}
    - Input: {name: positions, shape: [8], dtype: int32}
    - Embedding: {name: words, input_dim: 600, output_dim: 8, inputs: ids}
    - Embedding: {name: places, input_dim: 8, output_dim: 8, inputs: positions}
    - Add: {name: sum, inputs: [words, places]}
    - Dense: {units: 600}
compile:
  optimizer: Adam
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 4, epochs: 2}
seed: 1
run: {dir: run}
)";

std::string play_text() {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += "First Citizen:\nBefore we proceed any further, hear me speak.\n";
  }
  return text;
}

}  // namespace

TEST_CASE("data tokenize: ids of files, lines and stdin; a run on them; nothing is overwritten") {
  TemporaryFolder folder;
  folder.write("a.txt", play_text());
  const auto tokenize = [&](std::vector<std::string> more, const std::string& input = "") {
    Command command;
    command.args = {"data", "tokenize", "--tokenizer", kTokenizer, "--separator", "<|endoftext|>"};
    command.args.insert(command.args.end(), more.begin(), more.end());
    command.folder = folder.path();
    command.input = input;
    return run(command);
  };
  const Result files = tokenize({"a.txt", "-o", "ids.bin"});
  CHECK(files.err == "");
  REQUIRE(files.exit_code == 0);
  CHECK(contains(files.out, " tokens (uint16) of 1,220 bytes in 1 documents, "));
  const Result marked = tokenize({"-", "-o", "marked.bin"}, "\xef\xbb\xbf" + play_text());
  CHECK(marked.exit_code == 0);
  CHECK(folder.read("marked.bin") == folder.read("ids.bin"));
  const Result lines = tokenize({"-", "-o", "lines.bin", "--documents", "line"}, "a b\n\nc\r\n");
  CHECK(lines.exit_code == 0);
  CHECK(contains(lines.out, " of 4 bytes in 2 documents, "));
  const std::string raw_ids = test::read_text(folder.path() + "/lines.bin").substr(1024);
  CHECK(tokenize({"-", "-o", "raw.bin", "--documents", "line", "--header", "none"}, "a b\nc\n")
            .exit_code == 0);
  CHECK(test::read_text(folder.path() + "/raw.bin") == raw_ids);

  const Result taken = tokenize({"a.txt", "-o", "ids.bin"});
  CHECK(taken.exit_code == 2);
  CHECK(contains(taken.err, "`ids.bin` exists"));
  CHECK(tokenize({"a.txt", "-o", "ids.bin", "--force"}).exit_code == 0);
  const Result bad = tokenize({"-", "-o", "bad.bin"}, "ab\xff");
  CHECK(bad.exit_code == 3);
  CHECK(contains(bad.err, "`-`: byte 0xff at offset 2 is not UTF-8"));
  CHECK(!std::filesystem::exists(folder.path() + "/bad.bin"));
  const Result standard = tokenize({"a.txt", "-o", "-"});
  CHECK(standard.exit_code == 2);
  CHECK(contains(standard.err, "-o -: a file of ids is not written to standard output"));
  CHECK(contains(standard.err, "-o FILE.bin"));
  CHECK(!std::filesystem::exists(folder.path() + "/-"));
  const Result none = tokenize({"a.txt", "-o", "x.bin", "--separator", "600"});
  CHECK(none.exit_code == 2);

  folder.write("c.yaml", std::string("data:\n  train: {source: tokens, path: ids.bin, "
                                     "sequence_length: 8, vocabulary: 600, "
                                     "document_separator: 0}\n") +
                             kTokenModel);
  const Result trained = meshtrain({"train", "c.yaml", "--mesh", "2"}, folder.path());
  CAPTURE(trained.err);
  CHECK(trained.exit_code == 0);
}

TEST_CASE("import of a BERT brings its tokenizer along, which gives the same ids") {
  const TemporaryFolder folder;
  const std::string golden = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/";
  std::filesystem::copy(golden + "huggingface/bert_classifier", folder.path() + "/bert");
  for (const char* file : {"vocab.txt", "tokenizer_config.json"}) {
    std::filesystem::copy(golden + "tokenizers/bert_files/" + file, folder.path() + "/bert");
  }
  const Result imported = meshtrain({"import", "bert", "-o", "ours"}, folder.path());
  CHECK(imported.err == "");
  CHECK(contains(imported.out, "BertForSequenceClassification with its tokenizer"));
  folder.write("a.txt", "Caf\u00e9 \u4e16\u754c: hear me speak!\n");
  for (const char* from : {"bert", "ours"}) {
    const Result ids = meshtrain({"data", "tokenize", "--tokenizer", from, "--separator", "[SEP]",
                                  "a.txt", "-o", std::string(from) + ".bin"},
                                 folder.path());
    CHECK(ids.err == "");
  }
  CHECK(folder.read("ours.bin") == folder.read("bert.bin"));
}

TEST_CASE("text with a tokenizer: the run evaluates without the tokenizer's folder") {
  TemporaryFolder folder;
  folder.write("a.txt", play_text());
  const std::string moved = folder.path() + "/tokenizer";
  std::filesystem::copy(kTokenizer, moved);
  folder.write("c.yaml", std::string("data:\n  train: {source: text, path: a.txt, sequence_length: "
                                     "8, vocabulary: {tokenizer: tokenizer}, document_separator: "
                                     "0}\n  test: {source: text, path: a.txt}\n") +
                             kTokenModel);
  const Result trained = meshtrain({"train", "c.yaml"}, folder.path());
  CAPTURE(trained.err);
  REQUIRE(trained.exit_code == 0);
  std::filesystem::remove_all(moved);
  const Result evaluated = meshtrain({"evaluate", "run"}, folder.path());
  CAPTURE(evaluated.err);
  CHECK(evaluated.exit_code == 0);
}

}  // namespace meshtrain
