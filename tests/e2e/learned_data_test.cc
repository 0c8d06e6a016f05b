// A run is evaluated with what it learned in training: ids of texts, classes, means.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/json.h"
#include "command.h"
#include "data/digits.h"
#include "support/png_file.h"
#include "support/splitmix.h"
#include "tensor/npy.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCities = R"(
name: table
data:
  train:
    source: csv
    path: train.csv
    label: kind
    features: {sizes: [width, height], place: city}
    categorical: city
    missing: mean
  validation: {source: csv, path: validation.csv}
model:
  layers:
    - Input: {name: sizes, shape: [2]}
    - Input: {name: place, shape: [], dtype: int32}
    - Embedding: {name: where, input_dim: 4, output_dim: 2, inputs: place}
    - Concatenate: {name: all, inputs: [sizes, where]}
    - Dense: {units: 16, activation: relu}
    - Dense: {name: kind, units: 3, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.02}}, loss: sparse_categorical_crossentropy, metrics: [accuracy]}
fit: {batch_size: 32, epochs: 2}
evaluate: {on: validation}
)";

// The city decides most of the kind; a width in ten is not known. `without` is a city left out.
std::string cities_table(uint64_t seed, int rows, bool has_kind, const std::string& without = "") {
  const char* const kinds[] = {"cup", "jug", "bowl"};
  const char* const cities[] = {"Rome", "Bonn", "Oslo"};
  std::string text = has_kind ? "city,width,height,kind\n" : "city,width,height\n";
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows); ++i) {
    const uint64_t bits = test::splitmix_bits(seed, i);
    const size_t city = bits % 3;
    if (cities[city] == without) {
      continue;
    }
    const std::string width = (bits >> 50) % 10 == 0 ? "" : std::to_string(bits >> 8 & 3);
    text += fmt::format("{},{},{}{}\n", cities[city], width, bits >> 16 & 3,
                        has_kind ? std::string(",") + kinds[city] : "");
  }
  return text;
}

Result evaluated(const std::string& folder, std::vector<std::string> words) {
  words.insert(words.begin(), "evaluate");
  words.push_back("--log-format=json");
  return meshtrain(std::move(words), folder);
}

std::string logs_of(const Result& result) {
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return json_text(parse_json(lines_of(result.out).back())["logs"]);
}

std::string predicted(const TemporaryFolder& folder, const std::vector<std::string>& from,
                      const std::string& input) {
  std::vector<std::string> words = {"predict"};
  words.insert(words.end(), from.begin(), from.end());
  words.insert(words.end(), {"-i", input, "-o", "predicted.npy"});
  const Result result = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  CHECK_MESSAGE(result.err.find("warning") == std::string::npos, result.err);
  return folder.read("predicted.npy");
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// A trained run of tables in `run`.
struct TableRun {
  TableRun() {
    folder.write("train.csv", cities_table(1, 300, true));
    folder.write("validation.csv", cities_table(2, 100, true));
    folder.write("new.csv", cities_table(3, 50, false));
    folder.write("table.yaml", kCities);
    const Result train = meshtrain({"train", "table.yaml", "-o", "run", "-q"}, folder.path());
    REQUIRE_MESSAGE(train.exit_code == 0, train.err);
    logs = logs_of(evaluated(folder.path(), {"run"}));
    prediction = predicted(folder, {"run"}, "new.csv");
  }

  // Every way to the same numbers.
  void check_same() const {
    const std::vector<std::string> with_weights = {"table.yaml", "-w", "run/weights.safetensors"};
    CHECK(logs_of(evaluated(folder.path(), {"run"})) == logs);
    CHECK(logs_of(evaluated(folder.path(), with_weights)) == logs);
    CHECK(predicted(folder, {"run"}, "new.csv") == prediction);
    CHECK(predicted(folder, with_weights, "new.csv") == prediction);
  }

  TemporaryFolder folder;
  std::string logs, prediction;
};

}  // namespace

TEST_CASE("learned data: a run keeps ids, classes and means when the training file changes") {
  const TableRun run;
  run.folder.write("train.csv",
                   cities_table(1, 300, true) + "Aachen,0,0,bowl\n");  // takes the first id
  run.check_same();
  run.folder.write("train.csv", cities_table(1, 300, true, "Bonn"));  // also a kind less
  run.check_same();
  run.folder.write("train.csv", "city,width,height,kind\nRome,1000,0,cup\n");
  run.check_same();
  fs::remove(run.folder.file("train.csv"));
  run.check_same();
  CHECK(logs_of(evaluated(run.folder.path(), {"run/checkpoints/000020"})) == run.logs);
}

TEST_CASE("learned data: what needs the training file itself says so once") {
  const TableRun run;
  fs::remove(run.folder.file("train.csv"));
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"run", "evaluate.on=train"},
           {"run", "~data.validation", "fit.validation_split=0.25", "evaluate.on=validation"}}) {
    const Result result = evaluated(run.folder.path(), words);
    CHECK(result.exit_code == 3);
    CHECK_MESSAGE(count(result.err, "error[") == 1, result.err);
    CHECK_MESSAGE(contains(result.err, "error[E300]: "), result.err);
    CHECK_MESSAGE(contains(result.err, "/train.csv`"), result.err);
  }
  // In training, validation data that are read like those add no error of their own.
  const Result train = meshtrain({"train", "table.yaml", "-o", "other"}, run.folder.path());
  CHECK(train.exit_code == 3);
  CHECK_MESSAGE(count(train.err, "error[") == 1, train.err);
}

TEST_CASE("learned data: without them a run takes the training file as it is, with a warning") {
  const TableRun run;
  fs::remove(run.folder.file("run/data.json"));
  const Result old = evaluated(run.folder.path(), {"run"});
  CHECK(logs_of(old) == run.logs);
  CHECK_MESSAGE(contains(old.err, "warning[W328]: "), old.err);
  const Result predict =
      meshtrain({"predict", "run", "-i", "new.csv", "-o", "p.npy"}, run.folder.path());
  CHECK(predict.exit_code == 0);
  CHECK_MESSAGE(contains(predict.err, "warning[W328]: "), predict.err);
  fs::remove(run.folder.file("train.csv"));
  const Result gone = evaluated(run.folder.path(), {"run"});
  CHECK(gone.exit_code == 3);
  CHECK_MESSAGE(count(gone.err, "error[") == 1, gone.err);
}

TEST_CASE("learned data: a damaged file of them is refused") {
  const TableRun run;
  const std::string text = run.folder.read("run/data.json");
  REQUIRE(contains(text, "\"Bonn\""));
  std::string changed = text;
  changed.replace(changed.find("Bonn"), 4, "Bern");
  for (const auto& [bad, code] : {std::pair<std::string, std::string>{changed, "E403"},
                                  {text.substr(0, text.size() / 2), "E402"},
                                  {"", "E402"}}) {
    run.folder.write("run/data.json", bad);
    const Result result = evaluated(run.folder.path(), {"run"});
    CHECK(result.exit_code == 6);
    CHECK_MESSAGE(contains(result.err, "error[" + code + "]: "), result.err);
    CHECK_MESSAGE(contains(result.err, "data.json`"), result.err);
  }
}

TEST_CASE("learned data: they are beside exported weights") {
  const TableRun run;
  for (const std::string name : {"m.keras", "m.npz", "m.weights.h5", "m.safetensors"}) {
    CAPTURE(name);
    const Result exported = meshtrain({"export", "run", "-o", name}, run.folder.path());
    REQUIRE_MESSAGE(exported.exit_code == 0, exported.err);
    CHECK_MESSAGE(contains(exported.err, name + ".data.json"), exported.err);
  }
  REQUIRE(meshtrain({"export", "run", "-o", "script.py"}, run.folder.path()).exit_code == 0);
  CHECK(fs::exists(run.folder.file("script.weights.h5.data.json")));
  run.folder.write("train.csv", cities_table(1, 300, true, "Bonn"));
  for (const std::string name : {"m.keras", "m.npz", "m.weights.h5", "m.safetensors"}) {
    CAPTURE(name);
    CHECK(predicted(run.folder, {"table.yaml", "-w", name}, "new.csv") == run.prediction);
  }
  // And so are the sizes of vocabularies: three cities were known, not these four, or none.
  const std::string counts = "model.layers.where.input_dim==vocabulary_size(\"city\") + 1";
  for (const char* const city : {"\nOslo,1,1,cup\nPisa,1,1,cup\n", ""}) {
    run.folder.write("train.csv", city[0] == 0 ? "" : cities_table(1, 300, true) + (city + 1));
    CHECK(predicted(run.folder, {"table.yaml", counts, "-w", "m.npz"}, "new.csv") ==
          run.prediction);
  }
  // Of a run without them none may stay from an earlier one.
  fs::remove(run.folder.file("run/data.json"));
  REQUIRE(meshtrain({"export", "run", "-o", "m.npz"}, run.folder.path()).exit_code == 0);
  CHECK(!fs::exists(run.folder.file("m.npz.data.json")));
}

TEST_CASE("learned data: a run resumes with what it learned") {
  const TableRun run;
  run.folder.write("train.csv", cities_table(1, 300, true, "Bonn"));
  const Result refused = meshtrain({"resume", "run", "fit.epochs=3"}, run.folder.path());
  CHECK(refused.exit_code == 6);
  CHECK_MESSAGE(contains(refused.err, "error[E413]"), refused.err);
  const std::string learned = run.folder.read("run/data.json");
  const Result resumed =
      meshtrain({"resume", "run", "fit.epochs=3", "--reset-cursor", "-q"}, run.folder.path());
  REQUIRE_MESSAGE(resumed.exit_code == 0, resumed.err);
  CHECK(run.folder.read("run/data.json") == learned);
  run.folder.write("train.csv", cities_table(1, 300, true));
  CHECK(meshtrain({"verify", "run"}, run.folder.path()).exit_code == 0);
}

TEST_CASE("learned data: a run without its checkpoints is still evaluated and exported") {
  const TableRun run;
  fs::remove_all(run.folder.file("run/checkpoints"));
  fs::remove(run.folder.file("train.csv"));
  run.check_same();
  CHECK(meshtrain({"export", "run", "-o", "m.keras"}, run.folder.path()).exit_code == 0);
}

constexpr const char* kReviews = R"(
name: reviews
data:
  train:
    source: csv
    path: reviews.csv
    label: good
    features: {review: review, place: [city, age], both: both}
    preprocessing:
      - TextVectorization: {column: review, max_tokens: 12}
      - StringLookup: {column: city, output_mode: one_hot}
      - Discretization: {column: age, num_bins: 3, output_mode: one_hot}
      - HashedCrossing: {columns: [city, age], name: both, num_bins: 7}
model:
  layers:
    - Input: {name: review, shape: [3], dtype: int32}
    - Input: {name: place, shape: [7]}
    - Input: {name: both, shape: [], dtype: int32}
    - Embedding: {name: words, input_dim: =vocabulary_size("review"), output_dim: 4, inputs: review}
    - GlobalAveragePooling1D: {name: text}
    - Embedding: {name: crossed, input_dim: =vocabulary_size("both"), output_dim: 2, inputs: both}
    - Concatenate: {name: all, inputs: [text, place, crossed]}
    - Dense: {name: good, units: 2, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.05}}, loss: sparse_categorical_crossentropy, metrics: [accuracy]}
fit: {batch_size: 16, epochs: 2}
evaluate: {on: train}
)";

// Three words, a city of three and an age; the second word decides.
std::string reviews_table(uint64_t seed, int rows, bool has_label) {
  const char* const words[] = {"Fine", "awful", "cats!", "dogs", "the", "a"};
  const char* const cities[] = {"Rome", "Bonn", "Oslo"};
  std::string text = has_label ? "review,city,age,good\n" : "review,city,age\n";
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows); ++i) {
    const uint64_t bits = test::splitmix_bits(seed, i);
    text += fmt::format("\"{} {} {}\",{},{}{}\n", words[bits % 6], words[bits >> 8 & 1],
                        words[(bits >> 16) % 6], cities[(bits >> 24) % 3], bits >> 32 & 63,
                        has_label ? (bits >> 8 & 1) == 0 ? ",yes" : ",no" : "");
  }
  return text;
}

TEST_CASE("characters of a text column are all of its characters, spaces at its ends, too") {
  const TemporaryFolder folder;
  folder.write("t.csv", "a,y\n ab,0\nab,1\n\"ab \",0\n");
  folder.write("c.yaml", R"(
data:
  train: {source: csv, path: t.csv, label: y, features: {a: a}, preprocessing: [{TextVectorization: {column: a, split: character, output_sequence_length: 3}}]}
model: {layers: [{Input: {name: a, shape: [3]}}, {Lambda: {function: "=x * 1.0"}}]}
compile: {loss: mse}
)");
  const Result result =
      meshtrain({"predict", "c.yaml", "-i", "t.csv", "-o", "-", "-q"}, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("W328") == std::string::npos);  // nothing was trained
  const std::vector<std::string> rows = lines_of(result.out);
  REQUIRE(rows.size() >= 4);
  CHECK(rows[1] == "4,3,2");
  CHECK(rows[2] == "3,2,0");
  CHECK(rows[3] == "3,2,4");
}

TEST_CASE("learned data: tables of preprocessed columns are stored in the run and beside exports") {
  const TemporaryFolder folder;
  folder.write("reviews.csv", reviews_table(1, 200, true));
  folder.write("new.csv", reviews_table(2, 20, false));
  folder.write("reviews.yaml", kReviews);
  const Result train = meshtrain({"train", "reviews.yaml", "-o", "run", "-q"}, folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  const std::string prediction = predicted(folder, {"run"}, "new.csv");
  REQUIRE(meshtrain({"export", "run", "-o", "m.npz"}, folder.path()).exit_code == 0);
  folder.write("reviews.csv", reviews_table(3, 50, true));
  CHECK(predicted(folder, {"run"}, "new.csv") == prediction);
  CHECK(predicted(folder, {"reviews.yaml", "-w", "m.npz"}, "new.csv") == prediction);
}

TEST_CASE("learned data: texts that are no UTF-8 are saved and known again") {
  TemporaryFolder folder;
  std::string text = "n,city,kind\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{},{},{}\n", i % 5, i % 2 ? "K\xf6ln" : "Bonn", i % 2 ? "caf\xe9" : "tea");
  }
  folder.write("train.csv", text);
  folder.write("test.csv", text);
  folder.write("c.yaml", R"(
data:
  train: {source: csv, path: train.csv, label: kind, categorical: city}
  test: {source: csv, path: test.csv}
model: {layers: [{Input: {shape: [2]}}, {Dense: {units: 2, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {epochs: 1}
)");
  const Result train = meshtrain({"train", "c.yaml", "-o", "run", "-q"}, folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  const std::string logs = logs_of(evaluated(folder.path(), {"run"}));
  fs::remove(folder.file("train.csv"));
  CHECK(logs_of(evaluated(folder.path(), {"run"})) == logs);
  CHECK(logs_of(evaluated(folder.path(), {"run/checkpoints/000002"})) == logs);
}

TEST_CASE("learned data: characters keep their ids when the text changes") {
  TemporaryFolder folder;
  const std::string text = [] {
    std::string out;
    for (int i = 0; i < 300; ++i) {
      out += "the cat sat; ";
    }
    return out;
  }();
  folder.write("train.txt", text);
  folder.write("new.txt", "the cat the cat the cat");
  folder.write("text.yaml", R"(
data:
  train: {source: text, path: train.txt, sequence_length: 8, target: last, stride: 3}
  test: {source: text, path: test.txt}
model:
  layers:
    - Input: {shape: [8], dtype: int32}
    - Embedding: {input_dim: 8, output_dim: 4}
    - Flatten
    - Dense: {units: 8, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.02}}, loss: sparse_categorical_crossentropy}
fit: {batch_size: 32, epochs: 1}
)");
  folder.write("test.txt", "the cat sat; the cat sat; ");
  const Result train = meshtrain({"train", "text.yaml", "-o", "run", "-q"}, folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  const std::string logs = logs_of(evaluated(folder.path(), {"run"}));
  const std::string prediction = predicted(folder, {"run"}, "new.txt");
  folder.write("train.txt", "!?" + text.substr(2));
  CHECK(logs_of(evaluated(folder.path(), {"run"})) == logs);
  CHECK(predicted(folder, {"run"}, "new.txt") == prediction);
  fs::remove(folder.file("train.txt"));
  CHECK(logs_of(evaluated(folder.path(), {"run"})) == logs);
  CHECK(predicted(folder, {"run"}, "new.txt") == prediction);
}

TEST_CASE("learned data: image folders with other classes than the run's are refused by name") {
  TemporaryFolder folder;
  const DigitImages digits = make_digits(40, 1);
  const char* const names[] = {"cat", "dog", "eel", "fox"};
  for (int64_t i = 0; i < 40; ++i) {
    for (const char* root : {"a", "b"}) {
      test::write_png(folder.file(fmt::format("{}/{}/{}.png", root, names[i % 4], i)),
                      digits.images.data<uint8_t>() + i * 784);
    }
  }
  folder.write("c.yaml", R"(
data:
  train: {source: image_folder, directory: a, color_mode: grayscale, image_size: 28x28}
  transform: [{Rescaling: {scale: =1/255}}]
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: 4}]}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}, metrics: [accuracy]}
fit: {batch_size: 8, epochs: 2}
)");
  const Result train = meshtrain({"train", "c.yaml", "-o", "run", "-q"}, folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  const std::string other = "data.test={source: image_folder, directory: b}";
  const std::string logs = logs_of(evaluated(folder.path(), {"run", other}));
  const auto refused = [&](const std::vector<std::string>& says) {
    for (const auto& words : std::vector<std::vector<std::string>>{
             {"run", other}, {"c.yaml", "-w", "run/weights.safetensors", other}}) {
      const Result result = evaluated(folder.path(), words);
      CHECK(result.exit_code == 3);
      CHECK_MESSAGE(count(result.err, "error[") == 1, result.err);
      CHECK_MESSAGE(contains(result.err, "error[E324]: "), result.err);
      for (const std::string& text : says) {
        CHECK_MESSAGE(contains(result.err, text), result.err);
      }
    }
  };
  fs::rename(folder.file("b/cat"), folder.file("kept"));
  refused({"missing: cat", "an empty folder"});
  fs::create_directory(folder.file("b/cat"));
  const Result empty = evaluated(folder.path(), {"run", other});
  CHECK(logs_of(empty) != logs);
  fs::remove(folder.file("b/cat"));
  fs::rename(folder.file("kept"), folder.file("b/cat"));
  fs::rename(folder.file("b/fox"), folder.file("kept"));  // the last: no number changes
  refused({"missing: fox"});
  fs::rename(folder.file("kept"), folder.file("b/ant"));
  refused({"missing: fox", "new: ant"});
  fs::rename(folder.file("b/ant"), folder.file("b/fox"));
  // The folder that the run learned from is no measure any more.
  fs::remove_all(folder.file("a/eel"));
  CHECK(logs_of(evaluated(folder.path(), {"run", other})) == logs);
}

}  // namespace meshtrain

TEST_SUITE_END();
