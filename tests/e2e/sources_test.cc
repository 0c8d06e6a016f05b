// Tables and tokens from training to predictions, as a user has them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "command.h"
#include "support/splitmix.h"
#include "tensor/h5.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

constexpr const char* kTable = R"(
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
    - Embedding: {name: where, input_dim: 3, output_dim: 2, inputs: place}
    - Concatenate: {name: all, inputs: [sizes, where]}
    - Dense: {units: 16, activation: relu}
    - Dense: {name: kind, units: 3, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.02}}, loss: sparse_categorical_crossentropy, metrics: [accuracy]}
fit: {batch_size: 32, epochs: 5}
evaluate: {on: validation}
)";

// Kinds of things of different sizes; a width in twenty is not known.
std::string table(uint64_t seed, int rows, bool is_labelled) {
  const char* const kinds[] = {"cup", "jug, \"tall\"", "bowl"};
  const double widths[] = {1, 3, 5}, heights[] = {4, 1, 3};
  const char* const cities[] = {"Rome", "Bonn", "Oslo"};
  std::string text = is_labelled ? "city,width,height,kind\n" : "height,city,width\n";
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows); ++i) {
    const uint64_t bits = test::splitmix_bits(seed, i);
    const uint64_t kind = bits % 3;
    const auto noise = [&](int shift) { return static_cast<double>(bits >> shift & 255) / 256; };
    const std::string width =
        (bits >> 50) % 20 == 0 ? "NA" : fmt::format("{:.2f}", widths[kind] + noise(8));
    const std::string height = fmt::format("{:.2f}", heights[kind] + noise(16));
    const char* const city = cities[(bits >> 24) % 3];
    text += is_labelled ? fmt::format("{},{},{},{}\n", city, width, height,
                                      kind == 1 ? "\"jug, \"\"tall\"\"\"" : kinds[kind])
                        : fmt::format("{},{},{}\n", height, city, width);
  }
  return text;
}

double last_accuracy(const Result& result) {
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return parse_json(lines_of(result.out).back())["logs"]["accuracy"].get<double>();
}

TEST_CASE("csv: from a table to classes and to predictions for another table") {
  TemporaryFolder folder;
  folder.write("train.csv", table(1, 600, true));
  folder.write("validation.csv", table(2, 200, true));
  folder.write("new.csv", table(3, 90, false));
  folder.write("table.yaml", kTable);
  const Result train =
      meshtrain({"train", "table.yaml", "-o", "run", "-q", "--log-format", "json"}, folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  const std::string weights = "run/weights.safetensors";
  const double accuracy = last_accuracy(
      meshtrain({"evaluate", "table.yaml", "--weights", weights, "-q", "--log-format", "json"},
                folder.path()));
  CHECK(accuracy > 0.9);
  // What the run shows of its config means the same.
  folder.write("shown.yaml", folder.read("run/config.resolved.yaml"));
  CHECK(last_accuracy(meshtrain(
            {"evaluate", "shown.yaml", "--weights", weights, "-q", "--log-format", "json"},
            folder.path())) == accuracy);
  const Result predict = meshtrain({"predict", "table.yaml", "--weights", weights, "--input",
                                    "new.csv", "--output", "kinds.npy"},
                                   folder.path());
  REQUIRE_MESSAGE(predict.exit_code == 0, predict.err);
  const HostTensor kinds = read_npy(folder.file("kinds.npy"));
  REQUIRE(kinds.shape() == Shape{90, 3});
  int right = 0;
  for (int64_t i = 0; i < 90; ++i) {
    const float* const row = kinds.data<float>() + 3 * i;
    // bowl, cup, jug: the classes are sorted
    const int64_t kind[] = {1, 2, 0};
    right += std::max_element(row, row + 3) - row ==
             kind[test::splitmix_bits(3, static_cast<uint64_t>(i)) % 3];
  }
  CHECK(right > 80);
  folder.write("new.csv", "height,width\n1,2\n");
  const Result narrow = meshtrain({"predict", "table.yaml", "--weights", weights, "--input",
                                   "new.csv", "--output", "kinds.npy"},
                                  folder.path());
  CHECK(narrow.exit_code == 3);
  CHECK(narrow.err.find("has no column `city`; columns: height, width") != std::string::npos);
}

TEST_CASE("tokens: a bad id in the middle of an epoch ends the run with its offset") {
  TemporaryFolder folder;
  std::string ids;
  for (int i = 0; i < 4001; ++i) {
    const uint16_t id = i == 3456 ? 99 : static_cast<uint16_t>(i * 7 % 12);
    ids += {static_cast<char>(id & 255), static_cast<char>(id >> 8)};
  }
  folder.write("ids.bin", ids);
  folder.write("tokens.yaml", R"(
data:
  shuffle: false
  train: {source: tokens, path: ids.bin, sequence_length: 8, vocabulary: 12, slice: "[:80%]"}
  validation: {source: tokens, path: ids.bin, slice: "[:3400]"}
model:
  layers:
    - Input: {shape: [8], dtype: int32}
    - Embedding: {input_dim: 12, output_dim: 8}
    - Dense: {units: 12, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.05}}, loss: sparse_categorical_crossentropy, metrics: [accuracy]}
fit: {batch_size: 20, epochs: 3}
evaluate: {on: validation}
)");
  const Result good =
      meshtrain({"train", "tokens.yaml", "-o", "run", "-q", "--log-format", "json"}, folder.path());
  CHECK(last_accuracy(good) > 0.95);  // each id follows from the one before
  const Result bad =
      meshtrain({"train", "tokens.yaml", "-o", "bad", "data.train.slice='[:4001]'"}, folder.path());
  CHECK(bad.exit_code == 3);
  CHECK(bad.err.find("`ids.bin`: offset 3,456: id 99, but the vocabulary has 12 ids") !=
        std::string::npos);
}

TEST_CASE("ids that are no row of their embedding are refused wherever they come from") {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, DType dtype, const std::vector<double>& values) {
    HostTensor tensor(dtype, {static_cast<int64_t>(values.size()), 1});
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set(i, values[static_cast<size_t>(i)]);
    }
    write_npy(folder.file(name), tensor);
  };
  write("good.npy", DType::kInt64, {0, 11, 5, 3});
  write("floats.npy", DType::kFloat32, {0, 11.5, 5, 3});
  write("high.npy", DType::kInt64, {0, 11, 5, 12});
  write("negative.npy", DType::kInt32, {0, -1, 5, 3});
  write("y.npy", DType::kFloat32, {0, 1, 0, 1});
  folder.write("ids.yaml", R"(
data:
  train: {source: npy, x: good.npy, y: y.npy}
  validation: {source: npy, x: good.npy, y: y.npy}
model:
  layers:
    - Input: {name: x, shape: [1]}
    - Embedding: {name: wide, input_dim: 20, output_dim: 2, inputs: x}
    - Embedding: {name: e, input_dim: 12, output_dim: 2, inputs: x}
    - Add: {name: sum, inputs: [wide, e]}
    - Flatten
    - Dense: 1
compile: {optimizer: {SGD: {learning_rate: 0.0}}, loss: mse}
fit: {batch_size: 2}
evaluate: {on: validation}
)");
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-q", "--log-format=json"});
    return meshtrain(std::move(words), folder.path());
  };
  const Result trained = command({"train", "ids.yaml", "-o", "run", "data.train.x=floats.npy"});
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const auto refused = [](const Result& result, const std::string& says) {
    CHECK(result.exit_code == 3);
    CHECK_MESSAGE(result.err.find("error[E314]: `x`: " + says) != std::string::npos, result.err);
  };
  const std::string high = "sample 3 has the id 12; `e` has the rows 0..11";
  const std::string negative = "sample 1 has the id -1; `e` has the rows 0..11";
  const Result train = command({"train", "ids.yaml", "-o", "no", "data.train.x=high.npy"});
  refused(train, high);
  CHECK(train.err.find("`input_dim: 13`") != std::string::npos);
  refused(command({"train", "ids.yaml", "-o", "no", "data.validation.x=negative.npy"}), negative);
  const std::string weights = "run/weights.safetensors";
  refused(command({"evaluate", "ids.yaml", "-w", weights, "data.validation.x=high.npy"}), high);
  const auto predicted = [&](const std::string& input) {
    return meshtrain({"predict", "ids.yaml", "-w", weights, "-i", input, "--output", "p.npy"},
                     folder.path());
  };
  const Result good = predicted("good.npy");
  CHECK_MESSAGE(good.exit_code == 0, good.err);
  refused(predicted("high.npy"), high);
  const Result with_place = predicted("negative.npy");
  refused(with_place, negative);
  CHECK_MESSAGE(with_place.err.find("--input negative.npy") != std::string::npos, with_place.err);
}

double log_of(const Result& result, const char* name) {
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return parse_json(lines_of(result.out).back())["logs"][name].get<double>();
}

TEST_CASE("validation data of another type are not rounded to that of the training data") {
  TemporaryFolder folder;
  HostTensor bytes(DType::kUInt8, {40, 3}), floats(DType::kFloat32, {20, 3});
  HostTensor whole(DType::kInt64, {40, 1}), parts(DType::kFloat64, {20, 1});
  for (int64_t i = 0; i < 120; ++i) {
    bytes.set(i, static_cast<double>(i % 3));
    floats.set(i % 60, static_cast<double>(i % 7) / 8);
    whole.set(i % 40, static_cast<double>(i % 3));
    parts.set(i % 20, static_cast<double>(i % 5) / 4);
  }
  write_npy(folder.file("x.npy"), bytes);
  write_npy(folder.file("y.npy"), whole);
  write_npy(folder.file("vx.npy"), floats);
  write_npy(folder.file("vy.npy"), parts);
  write_npy(folder.file("w.npy"), HostTensor(DType::kFloat32, {40}));
  write_npy(folder.file("vw.npy"), HostTensor(DType::kFloat32, {20, 2}));
  folder.write("types.yaml", R"(
data:
  train: {source: npy, x: x.npy, y: y.npy}
  validation: {source: npy, x: vx.npy, y: vy.npy}
model: {layers: [{Input: {shape: [3]}}, {Dense: 1}]}
compile: {loss: mse}
fit: {batch_size: 10, epochs: 1}
evaluate: {on: validation}
)");
  const std::vector<std::string> train = {"train", "types.yaml", "-q", "--log-format", "json"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = train;
    words.insert(words.end(), more.begin(), more.end());
    return meshtrain(words, folder.path());
  };
  // `evaluate` opens the validation data alone.
  const double in_training = log_of(with({"-o", "run"}), "loss");
  const double alone =
      log_of(meshtrain({"evaluate", "run", "-q", "--log-format", "json"}, folder.path()), "loss");
  CHECK(in_training == doctest::Approx(alone).epsilon(1e-6));
  const Result weights = with(
      {"-o", "weighted", "data.train.sample_weight=w.npy", "data.validation.sample_weight=vw.npy"});
  CHECK(weights.exit_code == 3);
  CHECK_MESSAGE(weights.err.find("the validation data have sample weights of shape (2,), the train "
                                 "data ()") != std::string::npos,
                weights.err);
}

TEST_CASE("csv: words that only validation has are unknown, however the data are split") {
  TemporaryFolder folder;
  std::string table = "word,size,y\n";
  for (int i = 0; i < 40; ++i) {
    table += fmt::format("w{},{},{}\n", i, i % 5, i % 2);  // each word once
  }
  folder.write("words.csv", table);
  folder.write("words.yaml", R"(
data:
  split: {validation: 0.25}
  train:
    source: csv
    path: words.csv
    label: y
    features: {word: word}
    preprocessing: [{StringLookup: {column: word, output_mode: one_hot}}]
model: {layers: [{Input: {name: word, shape: ['=vocabulary_size("word")']}}, {Dense: {units: 1, activation: sigmoid}}]}
compile: {loss: binary_crossentropy}
fit: {batch_size: 10, epochs: 1}
)");
  const auto words_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train", "words.yaml", "-q", "-o",
                                      fmt::format("run{}", more.size())};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = meshtrain(words, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return parse_json(
               folder.read(fmt::format("run{}/data.json", more.size())))["tables"][0]["vocabulary"]
        .size();
  };
  CHECK(words_of({}) == 30);
  CHECK(words_of({"~data.split", "fit.validation_split=0.5"}) == 20);
  CHECK(words_of({"seed=5", "data.split.test=0.25", "fit.epochs=1"}) == 20);
  folder.write("words.csv", table + ",1,1\n");
  const Result missing = meshtrain({"train", "words.yaml"}, folder.path());
  CHECK(missing.exit_code == 3);
  CHECK_MESSAGE(missing.err.find("column `word` is empty") != std::string::npos, missing.err);
  const Result masked = meshtrain(
      {"train", "words.yaml", "-q", "data.train.preprocessing.StringLookup.mask_token=NA"},
      folder.path());
  CHECK_MESSAGE(masked.exit_code == 0, masked.err);
}

TEST_CASE("hdf5: samples and labels from one file") {
  TemporaryFolder folder;
  const HostTensor x = [] {
    HostTensor tensor(DType::kFloat32, {64, 2});
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set(i, static_cast<double>(test::splitmix_bits(4, static_cast<uint64_t>(i)) % 100));
    }
    return tensor;
  }();
  HostTensor y(DType::kFloat32, {64, 1});
  for (int64_t i = 0; i < 64; ++i) {
    y.set(i, (x.at(2 * i) + x.at(2 * i + 1)) / 100);
  }
  write_h5(folder.file("data.h5"), std::vector<H5Vars>{{"data", "", {&x, &y}}});
  folder.write("sum.yaml", R"(
data:
  train: {source: hdf5, path: data.h5, x: data/0, y: data/1}
  transform: [{Rescaling: {scale: 0.01}}]
model: {layers: [{Input: {shape: [2]}}, {Dense: {name: sum, units: 1}}]}
compile: {optimizer: {Adam: {learning_rate: 0.1}}, loss: mse}
fit: {batch_size: 8, epochs: 50}
evaluate: {on: train}
)");
  const Result train = meshtrain(
      {"train", "sum.yaml", "-o", "run", "-q", "--log-format", "json", "checkpoint.every=never"},
      folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  const nlohmann::json logs = parse_json(lines_of(train.out).back())["logs"];
  CHECK(logs["loss"].get<double>() < 1e-3);
  const Result missing =
      meshtrain({"train", "sum.yaml", "-o", "run2", "data.train.x=data/x"}, folder.path());
  CHECK(missing.exit_code == 3);
  CHECK(missing.err.find("error[E320]") != std::string::npos);
}

}  // namespace
}  // namespace meshtrain
