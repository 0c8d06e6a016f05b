// predict: what it reads, and what it writes for people.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "data/dataset.h"
#include "data/digits.h"
#include "support/png_file.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

Result predict_in(const TemporaryFolder& folder, std::vector<std::string> words) {
  words.insert(words.begin(), "predict");
  return meshtrain(std::move(words), folder.path());
}

HostTensor row_of(float first, float second) {
  HostTensor out(DType::kFloat32, {1, 2});
  out.set(0, first);
  out.set(1, second);
  return out;
}

void train_run(const TemporaryFolder& folder, const std::string& config) {
  folder.write("c.yaml", config);
  const Result result = meshtrain({"train", "c.yaml", "-o", "run", "-q"}, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
}

const char* const kAnimals[] = {"cat", "dog", "emu"};

void write_animals(const TemporaryFolder& folder, const std::string& root) {
  const DigitImages digits = make_digits(30, 1);
  for (int64_t i = 0; i < 30; ++i) {
    test::write_png(folder.file(fmt::format("{}/{}/{:02}.png", root, kAnimals[i % 3], i)),
                    digits.images.data<uint8_t>() + i * 784);
  }
}

constexpr const char* kAnimalImages = R"(
data:
  train: {source: image_folder, directory: a, color_mode: grayscale, image_size: 28x28}
  test: {source: image_folder, directory: b}
  transform: [{Rescaling: {scale: =1/255}}]
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: {name: out, units: 3}}]}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}, metrics: [accuracy]}
fit: {batch_size: 10, epochs: 2}
)";

// Big-endian header of IDX, and the bytes.
std::string idx_text(const DigitImages& digits, int64_t count) {
  std::string text("\0\0\x08\x03", 4);
  for (const int64_t size : {count, int64_t{28}, int64_t{28}}) {
    text += {'\0', '\0', '\0', static_cast<char>(size)};
  }
  return text + std::string(reinterpret_cast<const char*>(digits.images.data<uint8_t>()),
                            static_cast<size_t>(count * 784));
}

}  // namespace

TEST_CASE("predict names files, classes and probabilities, without the training folder") {
  TemporaryFolder folder;
  write_animals(folder, "a");
  write_animals(folder, "b");
  train_run(folder, kAnimalImages);
  const Result before = predict_in(folder, {"run", "-i", "b", "-o", "before.csv"});
  REQUIRE_MESSAGE(before.exit_code == 0, before.err);
  CHECK_MESSAGE(contains(before.err, "wrote 30 rows to before.csv"), before.err);
  const Result tested = meshtrain({"evaluate", "run", "--log-format=json"}, folder.path());
  const std::vector<std::string> lines = lines_of(folder.read("before.csv"));
  REQUIRE(lines.size() == 31);
  CHECK(lines[0] == "file,class,probability,out_cat,out_dog,out_emu");
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = split(lines[i], ',');
    REQUIRE(fields.size() == 6);
    CHECK(fs::exists(folder.file(fields[0])));
    CHECK(std::find(std::begin(kAnimals), std::end(kAnimals), fields[1]) != std::end(kAnimals));
    const double probability = std::stod(fields[2]);
    CHECK(probability >= 1.0 / 3);
    CHECK(probability <= 1);
  }
  CHECK(starts_with(lines[1], "b/cat/00.png,"));
  fs::remove_all(folder.file("a"));
  const Result after = predict_in(folder, {"run", "-i", "b", "-o", "after.csv"});
  REQUIRE_MESSAGE(after.exit_code == 0, after.err);
  CHECK(folder.read("after.csv") == folder.read("before.csv"));
  const Result again = meshtrain({"evaluate", "run", "--log-format=json"}, folder.path());
  REQUIRE(again.exit_code == 0);
  CHECK(json_text(parse_json(lines_of(again.out).back())["logs"]) ==
        json_text(parse_json(lines_of(tested.out).back())["logs"]));
}

namespace {

// What a template of keras.applications says of images of one's own, without its comment signs.
std::string with_own_images(std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    text.replace(at, from.size(), to);
  };
  replace("  train: {source: random", "  # train: {source: random");
  replace("  # train: {source: image_folder, directory: photos",
          "  train: {source: image_folder, directory: a");
  if (text.find("# transform:") != std::string::npos) {
    replace("# transform:", "transform:");
  }
  const size_t layer = text.find("- Lambda: {function");
  if (layer != std::string::npos) {
    const std::string line = text.substr(layer, text.find('\n', layer) - layer);
    const size_t input = text.find('\n', text.find("- Input:"));
    text.insert(input, "\n    " + line);
  }
  return text;
}

}  // namespace

TEST_CASE("templates of keras.applications take images of one's own as their comments say") {
  TemporaryFolder folder;
  write_animals(folder, "a");
  for (const char* name : {"mobilenet_v2", "resnet50", "densenet121", "convnext_tiny"}) {
    CAPTURE(name);
    const Result made = meshtrain({"init", name}, folder.path());
    REQUIRE(made.exit_code == 0);
    folder.write("own.yaml", with_own_images(made.out));
    const Result valid = meshtrain(
        {"validate", "--data", "own.yaml", "vars.size=64", "vars.classes=3"}, folder.path());
    CHECK_MESSAGE(valid.exit_code == 0, valid.err);
    CHECK_FALSE(contains(valid.err, "W329"));
  }
}

TEST_CASE("predict writes to stdout what it writes to a file") {
  TemporaryFolder folder;
  write_animals(folder, "a");
  write_animals(folder, "b");
  train_run(folder, kAnimalImages);
  for (const std::string format : {"csv", "jsonl", "npy"}) {
    CAPTURE(format);
    REQUIRE(predict_in(folder, {"run", "-i", "b", "-o", "y." + format}).exit_code == 0);
    const Result shown = predict_in(folder, {"run", "-i", "b", "-o", "-", "--format", format});
    REQUIRE_MESSAGE(shown.exit_code == 0, shown.err);
    CHECK(shown.out == folder.read("y." + format));
    CHECK(contains(shown.err, "wrote 30 rows to stdout"));
  }
  CHECK(predict_in(folder, {"run", "-i", "b", "-o", "-"}).out == folder.read("y.csv"));
  Command full;
  full.args = {"predict", "run", "-i", "b", "-o", "-"};
  full.folder = folder.path();
  full.out_to = "/dev/full";
  const Result lost = run(full);
  CHECK(lost.exit_code == 74);
  CHECK_FALSE(contains(lost.err, "wrote"));
  const nlohmann::json first = parse_json(lines_of(folder.read("y.jsonl")).front());
  CHECK(first.at("file") == "b/cat/00.png");
  CHECK(first.at("class").is_string());
  CHECK(first.at("out").size() == 3);
  const Result archive = predict_in(folder, {"run", "-i", "b", "-o", "-", "--format", "npz"});
  CHECK(archive.exit_code == 2);
  CHECK(contains(archive.err, "error[E140]: an .npz archive cannot be written to stdout"));
}

TEST_CASE("predict takes IDX files, folders of images and single images for any model of images") {
  TemporaryFolder folder;
  train_run(folder, R"(
data: {train: {source: digits, samples: 64}}
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Rescaling: {scale: =1/255}
    - Flatten
    - Dense: {units: 10, activation: softmax}
compile: {loss: sparse_categorical_crossentropy}
fit: {epochs: 1}
)");
  const DigitImages digits = make_digits(8, 5);
  folder.write("x-idx3-ubyte", idx_text(digits, 8));
  HostTensor array(DType::kUInt8, {8, 28, 28, 1});
  std::copy_n(digits.images.data<uint8_t>(), 8 * 784, array.data<uint8_t>());
  write_npy(folder.file("x.npy"), array);
  for (int64_t i = 0; i < 8; ++i) {
    test::write_png(folder.file(fmt::format("images/{}.png", i)),
                    digits.images.data<uint8_t>() + i * 784);
  }
  const auto rows = [&](const std::string& input) {
    const Result result = predict_in(folder, {"run", "-i", input, "-o", "y.npy"});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return folder.read("y.npy");
  };
  const std::string expected = rows("x.npy");
  CHECK(rows("x-idx3-ubyte") == expected);
  CHECK(rows("images") == expected);
  const Result one = predict_in(folder, {"run", "-i", "images/3.png", "-o", "-"});
  REQUIRE_MESSAGE(one.exit_code == 0, one.err);
  REQUIRE(lines_of(one.out).size() == 2);
  CHECK(starts_with(lines_of(one.out)[0], "file,class,probability,"));
  CHECK(starts_with(lines_of(one.out)[1], "images/3.png,"));
}

TEST_CASE("predict of a folder without images says so") {
  const TemporaryFolder folder;
  train_run(folder, R"(
data: {train: {source: digits, samples: 40}}
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: {units: 10}}]}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
)");
  fs::create_directory(folder.file("empty"));
  const Result result = predict_in(folder, {"run", "-i", "empty", "-o", "-"});
  CHECK(result.exit_code == 3);
  CHECK_MESSAGE(result.err.find("error[E327]") == 0, result.err);
  CHECK(result.err.find("empty` is a folder without images") != std::string::npos);
  CHECK(result.err.find("`--input` takes a .csv, .npy, .npz, .h5 or IDX file") !=
        std::string::npos);
}

TEST_CASE("predict says yes or no with the label's text, and nothing of a number's class") {
  TemporaryFolder folder;
  std::string text = "a,b,answer,size\n";
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("{},{},{},{}\n", i % 7, i % 5, i % 7 > 3 ? "yes" : "no", i % 7);
  }
  folder.write("t.csv", text);
  folder.write("new.csv", "a,b\n6,0\n0,0\n");
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, features: [a, b], label: {answer: answer, size: size}}}
model:
  layers:
    - Input: {name: x, shape: [2]}
    - Dense: {name: answer, units: 1, activation: sigmoid, inputs: x}
    - Dense: {name: size, units: 1, inputs: x}
  outputs: [answer, size]
compile: {loss: {answer: binary_crossentropy, size: mse}, optimizer: {Adam: {learning_rate: 0.3}}}
fit: {batch_size: 20, epochs: 30}
)");
  fs::remove(folder.file("t.csv"));
  const Result result = predict_in(folder, {"run", "-i", "new.csv", "-o", "-"});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "answer_class,answer_probability,answer,size");
  CHECK(starts_with(lines[1], "yes,"));
  CHECK(starts_with(lines[2], "no,"));
}

TEST_CASE("probabilities of a layer within another one are no logits") {
  TemporaryFolder folder;
  std::string text = "a,b,answer\n";
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("{},{},{}\n", i % 7, i % 5, i % 7 > 3 ? "yes" : "no");
  }
  folder.write("t.csv", text);
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, features: [a, b], label: answer}}
model:
  layers:
    - Input: {shape: [2]}
    - Dense: {units: 4}
    - SpectralNormalization: {layer: {Dense: {units: 1, activation: sigmoid}}}
compile: {loss: binary_crossentropy, optimizer: {Adam: {learning_rate: 0.3}}}
fit: {batch_size: 20, epochs: 30}
)");
  folder.write("new.csv", "a,b\n6,0\n0,0\n");
  const Result result = predict_in(folder, {"run", "-i", "new.csv", "-o", "-"});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "class,probability,spectral_normalization");
  const std::vector<std::string> yes = split(lines[1], ','), no = split(lines[2], ',');
  CHECK(yes[0] == "yes");
  CHECK(yes[1] == yes[2]);
  CHECK(no[0] == "no");
  CHECK(std::stod(no[1]) == doctest::Approx(1 - std::stod(no[2])));
}

TEST_CASE("predict names classes as model.class_names does, where the data have no names") {
  TemporaryFolder folder;
  train_run(folder, R"(
data: {train: {source: random, samples: 8, shape: [2], classes: 3}}
model:
  class_names: [red, green, "light, blue"]
  layers:
    - Input: {shape: [2]}
    - Dense: {units: 3, bias_initializer: {Constant: {value: 0}}, activation: softmax}
compile: {loss: sparse_categorical_crossentropy}
fit: {batch_size: 8, epochs: 1}
)");
  folder.write("new.csv", "a,b\n6,0\n-6,0\n");
  const Result result = predict_in(folder, {"run", "-i", "new.csv", "-o", "-"});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == R"(class,probability,dense_red,dense_green,"dense_light, blue")");
  for (int i : {1, 2}) {
    const bool has_name = starts_with(lines[i], "red,") || starts_with(lines[i], "green,") ||
                          starts_with(lines[i], R"("light, blue",)");
    CHECK_MESSAGE(has_name, lines[i]);
  }
}

TEST_CASE("classes of the data have the numbers of model.class_names, or other names") {
  const TemporaryFolder folder;
  folder.write("d.csv", "a,s\n1,neg\n2,pos\n3,pos\n");
  folder.write("c.yaml", R"(
data: {train: {source: csv, path: d.csv, label: s}}
model: {class_names: [pos, neg], layers: [{Input: {shape: [1]}}, {Dense: {units: 2, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {epochs: 1}
)");
  const auto run = [&](const std::string& word) {
    return meshtrain({"train", "c.yaml", "-q", "run.dir=null", word}, folder.path());
  };
  const Result swapped = run("fit.batch_size=3");
  CHECK(swapped.exit_code == 3);
  CHECK(contains(swapped.err,
                 "`neg` is class 0 of the train data, and class 1 of `model.class_names`"));
  CHECK(run("data.train.vocabulary={s: [pos, neg]}").exit_code == 0);
  CHECK(run("model.class_names=[bad, good]").exit_code == 0);
}

TEST_CASE("predict names the character that follows a text, without the training text") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "abc,";
  }
  folder.write("t.txt", text);
  folder.write("new.txt", "abc,abc,");
  train_run(folder, R"(
data: {train: {source: text, path: t.txt, sequence_length: 4, target: last, stride: 1}}
model:
  layers:
    - Input: {shape: [4], dtype: int32}
    - Embedding: {input_dim: 4, output_dim: 8}
    - Flatten
    - Dense: {units: 4, activation: softmax}
compile: {loss: sparse_categorical_crossentropy, optimizer: {Adam: {learning_rate: 0.05}}}
fit: {epochs: 3}
)");
  const Result before = predict_in(folder, {"run", "-i", "new.txt", "-o", "-"});
  REQUIRE_MESSAGE(before.exit_code == 0, before.err);
  CHECK_MESSAGE(starts_with(lines_of(before.out)[1], "a,"), before.out);      // after "abc,"
  CHECK_MESSAGE(starts_with(lines_of(before.out)[2], "b,"), before.out);      // after "bc,a"
  CHECK_MESSAGE(starts_with(lines_of(before.out)[4], "\",\","), before.out);  // quoted
  fs::remove(folder.file("t.txt"));
  CHECK(predict_in(folder, {"run", "-i", "new.txt", "-o", "-"}).out == before.out);
}

TEST_CASE("predict without -i and -o names both") {
  TemporaryFolder folder;
  const Result both = predict_in(folder, {"run"});
  CHECK(both.exit_code == 2);
  CHECK_MESSAGE(contains(both.err, "`predict` needs `-i`, the samples, and `-o`"), both.err);
  CHECK(contains(predict_in(folder, {"run", "-i", "x"}).err, "`predict` needs `-o`"));
  CHECK(contains(predict_in(folder, {"run", "-o", "x.csv"}).err, "`predict` needs `-i`"));
}

TEST_CASE("predict names all columns that are missing and those that are new") {
  TemporaryFolder folder;
  std::string text = "a,b,c,y\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{},{},{},{}\n", i % 3, i % 5, i % 7, i % 4);
  }
  folder.write("t.csv", text);
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [3]}}, {Dense: 1}]}
compile: {loss: mse}
)");
  folder.write("new.csv", "b,size\n1,2\n");
  const Result result = predict_in(folder, {"run", "-i", "new.csv", "-o", "-"});
  CHECK(result.exit_code == 3);
  CHECK_MESSAGE(contains(result.err, "missing: a, c"), result.err);
  CHECK_MESSAGE(contains(result.err, "new: size"), result.err);
}

TEST_CASE("names stay where the model has more classes than the data") {
  TemporaryFolder folder;
  folder.write("t.csv", "a,y\n1,cat\n-1,dog\n1,cat\n-1,dog\n");
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Dense: {name: d, units: 3}}]}
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  optimizer: {Adam: {learning_rate: 0.5}}
fit: {batch_size: 4, epochs: 20}
)");
  folder.write("x.csv", "a\n1\n-1\n");
  const Result result = predict_in(folder, {"run", "-i", "x.csv", "-o", "-", "-q"});
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE_MESSAGE(lines.size() == 3, result.out);
  CHECK_MESSAGE(starts_with(lines[1], "cat,"), result.out);
  CHECK_MESSAGE(starts_with(lines[2], "dog,"), result.out);
}

TEST_CASE("several inputs take arrays by their names only") {
  TemporaryFolder folder;
  folder.write("c.yaml", R"(
model:
  layers:
    - Input: {name: a, shape: [2]}
    - Input: {name: b, shape: [2]}
    - Subtract: {name: d, inputs: [a, b]}
)");
  const auto predict = [&](const std::string& first, const std::string& second) {
    std::vector<NamedTensor> arrays;
    arrays.push_back({first, row_of(3, 4)});
    arrays.push_back({second, row_of(1, 1)});
    write_npz(folder.file("x.npz"), arrays);
    return predict_in(folder, {"c.yaml", "-i", "x.npz", "-o", "-", "-q"});
  };
  CHECK(contains(predict("a", "b").out, "2,3"));
  CHECK(contains(predict("b", "a").out, "-2,-3"));
  CHECK(contains(predict("arr_0", "arr_1").out, "2,3"));  // as numpy.savez numbers them
  CHECK(contains(predict("t_10", "t_9").out, "-2,-3"));
  CHECK(contains(predict("t", "t_1").out, "2,3"));  // as Keras does
  for (const char* first : {"p", "a"}) {
    const Result wrong = predict(first, "q");
    CHECK(wrong.exit_code == 3);
    CHECK_MESSAGE(contains(wrong.err, "q for the inputs a, b"), wrong.err);
  }
}

TEST_CASE("predict and evaluate say what is not finite") {
  TemporaryFolder folder;
  folder.write("t.csv", "a,y\n1,0\n-1,0\n");
  folder.write("c.yaml", R"yaml(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Lambda: {name: f, function: "=log(x)"
}
}]
}
compile: {loss: mse}
evaluate: {"on": train}
)yaml");
  folder.write("x.csv", "a\n1\n-1\n");
  const Result predicted = predict_in(folder, {"c.yaml", "-i", "x.csv", "-o", "-"});
  CHECK(predicted.exit_code == 0);
  CHECK_MESSAGE(contains(predicted.err, "warning[W502]: `f` of sample 1 is NaN"), predicted.err);
  const Result evaluated = meshtrain({"evaluate", "c.yaml"}, folder.path());
  CHECK(evaluated.exit_code == 0);
  CHECK_MESSAGE(contains(evaluated.err, "warning[W502]: `loss` is NaN"), evaluated.err);
}

TEST_CASE("predict gives outputs whose steps the model leaves open") {
  TemporaryFolder folder;
  folder.write("c.yaml",
               "model: {layers: [{Input: {shape: [null, 3]}}, {Dense: {name: d, units: 2}}]}\n"
               "compile: {loss: mse}\n"
               "data: {train: {source: random, samples: 8, shape: [5, 3], labels: [5, 2]}}\n"
               "fit: {epochs: 1}\n");
  REQUIRE(meshtrain({"train", "c.yaml", "-q", "-o", "run"}, folder.path()).exit_code == 0);
  write_npy(folder.file("x.npy"), HostTensor(DType::kFloat32, {2, 7, 3}));
  const Result predicted = predict_in(folder, {"run", "-i", "x.npy", "-o", "y.npy"});
  REQUIRE_MESSAGE(predicted.exit_code == 0, predicted.err);
  CHECK(read_npy(folder.file("y.npy")).shape() == Shape{2, 7, 2});
}

TEST_CASE("a training file that changed is a note") {
  TemporaryFolder folder;
  std::string text = "a,y\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{},{}\n", i % 3, i % 4);
  }
  folder.write("t.csv", text);
  folder.write("new.csv", "a\n1\n");
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}
compile: {loss: mse}
)");
  const Result same = predict_in(folder, {"run", "-i", "new.csv", "-o", "-"});
  CHECK_MESSAGE(!contains(same.err, "changed"), same.err);
  folder.write("t.csv", text + "2,2\n");
  const Result changed = predict_in(folder, {"run", "-i", "new.csv", "-o", "-"});
  CHECK(changed.exit_code == 0);
  CHECK_MESSAGE(contains(changed.err, "note: training data changed since the run began: "),
                changed.err);
  CHECK(changed.out == same.out);
  fs::remove(folder.file("t.csv"));
  CHECK(!contains(predict_in(folder, {"run", "-i", "new.csv", "-o", "-"}).err, "changed"));
}

TEST_CASE("means are those of the rows that train, without validation_split") {
  TemporaryFolder folder;
  std::string text = "a,y\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{},{}\n", i < 30 ? "2" : "1000", i % 4);
  }
  folder.write("t.csv", text);
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, label: y, missing: mean}}
model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}
compile: {loss: mse}
fit: {validation_split: 0.25}
)");
  const nlohmann::json learned = parse_json(folder.read("run/data.json"));
  CHECK(learned.at("means").at(0).at("mean") == 2.0);
}

TEST_CASE("means are those of the rows that train, with data.split") {
  TemporaryFolder folder;
  std::string text = "a,y\n";
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("{},{}\n", i * i, i % 4);
  }
  folder.write("t.csv", text);
  train_run(folder, R"(
data:
  train: {source: csv, path: t.csv, label: y, missing: mean, slice: "[10:50]"}
  split: {validation: 0.25, seed: 3}
model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}
compile: {loss: mse}
)");
  Dataset samples;
  samples.num_samples = 40;
  SplitConfig split;
  split.validation.value = 0.25;
  double sum = 0;
  const std::vector<int64_t> rows = draw_split(samples, split, 3)[0];
  CHECK(rows.size() == 30);
  for (const int64_t row : rows) {
    sum += static_cast<double>((10 + row) * (10 + row));
  }
  const nlohmann::json learned = parse_json(folder.read("run/data.json"));
  CHECK(learned.at("means").at(0).at("mean").get<double>() == doctest::Approx(sum / 30));
}

TEST_CASE("evaluate --details: on the terminal, as JSON, in the report, the same on every mesh") {
  TemporaryFolder folder;
  write_animals(folder, "a");
  write_animals(folder, "b");
  train_run(folder, kAnimalImages);
  const auto evaluate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"evaluate", "run", "--details"});
    return meshtrain(std::move(more), folder.path());
  };
  const Result one = evaluate({});
  REQUIRE_MESSAGE(one.exit_code == 0, one.err);
  CHECK(contains(one.out, "out: 30 samples, accuracy "));
  CHECK(contains(one.out, "target \\ predicted  cat  dog  emu\n"));
  CHECK(contains(one.err, "details     run/evaluation.json\n"));
  const nlohmann::json details = parse_json(folder.read("run/evaluation.json"));
  const nlohmann::json& output = details.at("outputs").at(0);
  CHECK(output.at("classes").at(1).at("name") == "dog");
  CHECK(output.at("classes").at(2).at("support") == 10);
  for (const nlohmann::json& worst : output.at("worst"))
    CHECK(contains(worst.at("file").get<std::string>(), "/b/"));
  CHECK(contains(folder.read("run/report.html"), "<h2>Evaluation in detail</h2>"));

  const Result mesh = evaluate({"--mesh", "2", "--details-file", "other.json"});
  CHECK(mesh.out.substr(mesh.out.find("out: ")) == one.out.substr(one.out.find("out: ")));
  CHECK(folder.read("other.json") == folder.read("run/evaluation.json"));
  const Result json = evaluate({"--log-format", "json", "evaluate.steps=1"});
  const nlohmann::json event = parse_json(lines_of(json.out).back());
  CHECK(event.at("event") == "details");
  CHECK(event.at("outputs").at(0).at("samples") == 10);  // one step of ten

  const Result alone = meshtrain({"evaluate", "run", "--details-file", "x"}, folder.path());
  CHECK(alone.exit_code == 2);
  const Result lost = evaluate({"--details-file", "none/x.json"});
  CHECK(lost.exit_code == 74);
}

TEST_CASE("evaluate --details of numbers, and of outputs that have none") {
  TemporaryFolder folder;
  folder.write("t.csv", "a,b,y\n1,2,3\n2,2,4\n3,1,4\n4,4,8\n");
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [2]}}, {Dense: {name: sum, units: 1, kernel_initializer: ones}}]}
compile: {optimizer: {SGD: 0.0}, loss: mse}
fit: {batch_size: 2, epochs: 1}
)");
  const Result result = meshtrain({"evaluate", "run", "--details"}, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  CHECK(contains(result.out, "sum: 4 samples, mean residual 0, mean |residual| 0\n"));
  CHECK(contains(result.out, "residuals  least  5%  25%  50%  75%  95%  largest\n"));
}

TEST_CASE("watch: rows of epochs, charts on a terminal, the end and the exit code of the run") {
  TemporaryFolder folder;
  folder.write("t.csv", "a,b,y\n1,2,3\n2,2,4\n3,1,4\n4,4,8\n");
  train_run(folder, R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [2]}}, {Dense: {units: 1}}]}
compile: {optimizer: {SGD: 0.01}, loss: mse, metrics: [mae]}
fit: {batch_size: 2, epochs: 3}
)");
  const auto watch = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"watch", "--interval", "0.05"});
    return meshtrain(std::move(more), folder.path());
  };
  const Result whole = watch({"run"});
  CHECK(whole.exit_code == 0);
  const std::vector<std::string> lines = lines_of(whole.out);
  REQUIRE(lines.size() >= 4);
  CHECK(contains(lines[0], "epoch 1/3 - "));
  CHECK(contains(lines[2], " - loss: "));
  CHECK(lines[3] == "finished");
  if (has_terminals()) {
    Command drawn{.args = {"watch", "run"}, .folder = folder.path(), .on_terminal = true};
    CHECK(contains(run(drawn).out, "epoch 3/3  finished  "));
  }
  // A run that was killed while it wrote a line has no end, and nobody has its lock.
  std::string events = folder.read("run/metrics.jsonl");
  events.resize(events.find("{\"event\":\"epoch\",\"epoch\":3") + 30);
  folder.write("run/metrics.jsonl", events);
  const Result killed = watch({"run", "run"});
  CHECK(killed.exit_code == 1);
  CHECK(contains(killed.out, "run: epoch 2/3 - "));
  CHECK(!contains(killed.out, "epoch 3/3"));
  CHECK(contains(killed.out, "run: no end recorded\n"));
  CHECK(watch({"run", "--once"}).exit_code == 0);
  const Result none = watch({"nothing"});
  CHECK(none.exit_code == 6);
  CHECK(contains(none.err, "error[E400]: there is no folder `nothing`"));
}

}  // namespace meshtrain

TEST_SUITE_END();
