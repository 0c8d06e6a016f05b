// Texts in a folder for each class: the source text_folder, beside the same texts as a table.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "command.h"
#include "support/splitmix.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClasses[] = {"neg", "pos"};

// "bad" and "good" among other words, quotes, separators and lines.
std::string review(int i) {
  const char* const others[] = {"film", "\"plot\"", "end,", "actors\nand", "\xc3\xa9toile", "NA"};
  std::string text;
  for (int word = 0; word < 4 + i % 5; ++word) {
    const uint64_t bits = test::splitmix_bits(5, static_cast<uint64_t>(100 * i + word));
    text += std::string(word == 0 ? "" : " ") + others[bits % 6];
  }
  return text + (i % 2 == 1 ? " good" : " bad");
}

// reviews/neg/00.txt, ..., and the same in the order of the folders as reviews.csv.
class ReviewsFolder : public TemporaryFolder {
 public:
  explicit ReviewsFolder(int count = 24) {
    std::string table = "text,label\n";
    for (int label = 0; label < 2; ++label) {
      for (int i = label; i < count; i += 2) {
        std::string quoted;
        for (const char c : review(i)) {
          quoted.append(c == '"' ? 2 : 1, c);
        }
        table += fmt::format("\"{}\",{}\n", quoted, kClasses[label]);
        put(fmt::format("reviews/{}/{:02}.txt", kClasses[label], i), review(i));
      }
    }
    write("reviews.csv", table);
    write("folder.yaml", config("{source: text_folder, directory: reviews, "));
    write("table.yaml",
          config("{source: csv, path: reviews.csv, label: label, missing_texts: [\"(none)\"], "));
  }

  static std::string config(const std::string& source) {
    return "name: reviews\ndata:\n  train: " + source + R"(preprocessing: [{TextVectorization:
      {column: text, max_tokens: 12, output_sequence_length: 6}}]}
  split: {validation: 0.25, seed: 3}
model:
  layers:
    - Input: {shape: [6], dtype: int32}
    - Embedding: {input_dim: =vocabulary_size("text"), output_dim: 4, mask_zero: true}
    - GlobalAveragePooling1D
    - Dense: {name: class, units: =num_classes(), activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.1}}, loss: sparse_categorical_crossentropy}
fit: {batch_size: 4, epochs: 3}
)";
  }

  // A file with its folders.
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    write(name, text);
  }
  Result ok(const std::vector<std::string>& args) const {
    Result result = meshtrain(args, path());
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    return result;
  }
  void refused(const std::vector<std::string>& args, int code,
               const std::vector<std::string>& parts) const {
    const Result result = meshtrain(args, path());
    CHECK(result.exit_code == code);
    for (const std::string& part : parts) {
      CHECK_MESSAGE(result.err.find(part) != std::string::npos, result.err);
    }
  }
};

}  // namespace

TEST_CASE("texts in folders train as the same texts of a table") {
  const ReviewsFolder folder;
  folder.ok({"train", "folder.yaml", "-q", "-o", "a"});
  folder.ok({"train", "table.yaml", "-q", "-o", "b"});
  CHECK(folder.read("a/weights.safetensors") == folder.read("b/weights.safetensors"));
  CHECK(contains(folder.ok({"data", "inspect", "folder.yaml"}).out, "0 neg "));

  const Result wrote = folder.ok({"predict", "a", "-i", "reviews", "-o", "a.csv"});
  folder.ok({"predict", "b", "-i", "reviews.csv", "-o", "b.csv"});
  const std::vector<std::string> by_folder = lines_of(folder.read("a.csv"));
  const std::vector<std::string> by_table = lines_of(folder.read("b.csv"));
  REQUIRE(by_folder.size() == 25);
  CHECK(by_folder[0] == "file,class,probability,class_neg,class_pos");
  CHECK(by_folder[1].substr(0, 19) == "reviews/neg/00.txt,");
  for (size_t i = 1; i < by_folder.size(); ++i) {
    CHECK(by_folder[i].substr(by_folder[i].find(',') + 1) == by_table[i]);
  }

  // The run needs no training data; a text alone, and a folder without classes.
  fs::rename(folder.file("reviews"), folder.file("elsewhere"));
  folder.ok({"predict", "a", "-i", "elsewhere/pos/01.txt", "-o", "one.csv"});
  CHECK(contains(folder.read("one.csv"), "\nelsewhere/pos/01.txt,pos,"));
  folder.ok({"predict", "a", "-i", "elsewhere/pos", "-o", "pos.csv"});
  CHECK(lines_of(folder.read("pos.csv")).size() == 13);
  folder.ok({"evaluate", "a", "data.test={source: text_folder, directory: elsewhere}",
             "evaluate.on=test"});
  folder.refused({"predict", "a", "-i", "reviews.csv", "-o", "no.csv"}, 3,
                 {"E316", "reviews.csv` is not named as a text is: .txt"});
}

TEST_CASE("parts, classes and labels of folders of texts") {
  const ReviewsFolder folder;
  const std::string more = ", validation_split: 0.25, seed: 1, subset: ";
  const auto with = [&](const std::string& args) {
    return "data.train={source: text_folder, directory: reviews, preprocessing: "
           "[{TextVectorization: {column: text, output_sequence_length: 6}}]" +
           args + "}";
  };
  folder.ok({"train", "folder.yaml", "-q", "~data.split", with(more + "training"),
             "data.validation={source: text_folder, directory: reviews" + more + "validation}"});
  folder.refused({"train", "folder.yaml", "~data.split", "fit.validation_split=0.2"}, 2,
                 {"E113", "takes the last texts, and `text_folder` sorts them by class"});
  folder.ok({"train", "folder.yaml", "-q", with(", label_mode: binary"),
             "model.layers.class.units=1", "model.layers.class.activation=sigmoid",
             "compile.loss=binary_crossentropy"});
  folder.ok({"train", "folder.yaml", "-q", with(", label_mode: categorical"),
             "compile.loss=categorical_crossentropy", "model.layers.class.units=2"});
  folder.put("reviews/unsup/1.txt", "unknown");
  folder.refused({"train", "folder.yaml", with(", label_mode: binary")}, 2,
                 {"E113", "`label_mode: binary` needs two classes"});
  folder.ok({"train", "folder.yaml", "-q", with(", class_names: [pos, neg]")});
  folder.refused({"train", "folder.yaml", with(", class_names: [pos, bad]")}, 2,
                 {"E113", "has no folder for the class `bad`"});
}

TEST_CASE("a draft for folders of texts trains") {
  const ReviewsFolder folder(60);
  folder.put("reviews/unsup/1.txt", "unknown");
  folder.put("reviews/urls.txt", "of no class");
  const Result draft = folder.ok({"init", "--from", "reviews"});
  CHECK(contains(draft.out, "# 60 texts of 2 classes."));
  CHECK(contains(draft.out, "class_names: [neg, pos]  # without unsup"));
  CHECK_MESSAGE(contains(draft.out, "output_sequence_length: 10}"), draft.out);
  folder.write("draft.yaml", draft.out);
  folder.ok({"train", "draft.yaml", "-q", "-o", "run", "fit.epochs=80"});
  const std::string found = folder.ok({"evaluate", "run"}).out;
  CHECK_MESSAGE((contains(found, "accuracy: 0.9") || contains(found, "accuracy: 1.0")), found);
  const std::string seen = folder.ok({"data", "inspect", "reviews"}).out;
  CHECK_MESSAGE(contains(seen, "text_folder reviews: 3 classes"), seen);
  CHECK_MESSAGE(contains(seen, "characters"), seen);
}

TEST_CASE("what is wrong with folders of texts") {
  const ReviewsFolder folder;
  const auto with = [](const std::string& args) {
    return "data.train={source: text_folder, directory: reviews" + args + "}";
  };
  const auto transformed = [&](const std::string& transform) {
    return with(", preprocessing: [" + transform + "]");
  };
  folder.refused({"train", "folder.yaml", with("")}, 2,
                 {"E111", "`text_folder` needs `preprocessing`: texts are no numbers",
                  "[{TextVectorization: {column: text"});
  folder.refused(
      {"train", "folder.yaml", transformed("{TextVectorization: {column: review}}")}, 2,
      {"E113", "`text_folder` has no column `review`", "its texts are the column `text`"});
  folder.refused({"train", "folder.yaml", transformed("{StringLookup: {column: text}}")}, 2,
                 {"E113", "`StringLookup` takes no texts of a `text_folder`"});
  folder.refused({"train", "folder.yaml", with(", preprocessing: [], directory: no")}, 2, {"E111"});
  folder.refused({"train", "folder.yaml", "data.train.directory=no"}, 3,
                 {"E300", "there is no folder `no`"});
  folder.put("reviews/neg/zero.txt", std::string("a\0b", 3));
  folder.refused({"train", "folder.yaml"}, 3, {"E310", "reviews/neg/zero.txt"});
  fs::remove(folder.file("reviews/neg/zero.txt"));
  folder.put("reviews/neg/long.txt", std::string(size_t{5} << 20, 'a'));
  folder.refused({"train", "folder.yaml"}, 3, {"E300", "reviews/neg/long.txt"});
  fs::remove(folder.file("reviews/neg/long.txt"));
  folder.put("reviews/neg/empty.txt", "");  // a text of no words
  folder.ok({"train", "folder.yaml", "-q"});
  fs::remove_all(folder.file("reviews/neg"));
  fs::remove_all(folder.file("reviews/pos"));
  folder.put("reviews/neg/picture.png", "x");
  folder.refused({"train", "folder.yaml"}, 3,
                 {"E316", "there are no texts (.txt) in `reviews`, only 1 other file"});
}

}  // namespace meshtrain

TEST_SUITE_END();
