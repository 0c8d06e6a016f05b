// Data as people have it: tables with missing texts and dates, drafts of configs, the page on
// writing a config.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/json.h"
#include "command.h"
#include "data/digits.h"
#include "data/image.h"
#include "support/png_file.h"
#include "support/splitmix.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHouses = R"(
name: houses
data:
  train:
    source: csv
    path: houses.csv
    label: price
    features: {numbers: [area, sold, heating], city: city}
    categorical: [city]
    one_hot: [heating]
    dates: {sold: [year, month]}
    mask_token: "[MASK]"
    oov_token: "[UNK]"
  split: {validation: 0.25, seed: 1}
model:
  layers:
    - Input: {name: numbers, shape: [7]}
    - Input: {name: city, shape: [], dtype: int32}
    - Embedding: {name: where, input_dim: =vocabulary_size("city"), output_dim: 2, inputs: city}
    - Concatenate: {name: all, inputs: [numbers, where]}
    - Dense: {units: 1, name: price}
compile: {optimizer: adam, loss: mse}
fit: {epochs: 1}
)";

std::string houses_table(int rows) {
  const char* const cities[] = {"Rome", "Bonn", "Oslo", ""};
  const char* const heatings[] = {"gas", "oil", ""};
  std::string text = "sold,area,rooms,city,heating,price\n";
  for (int i = 0; i < rows; ++i) {
    const uint64_t bits = test::splitmix_bits(3, static_cast<uint64_t>(i));
    const uint64_t area = 30 + bits % 100;
    text += fmt::format("{}-{:02}-{:02},{},{},{},{},{}\n", 2015 + (bits >> 8) % 8,
                        1 + (bits >> 16) % 12, 1 + (bits >> 24) % 28, area, 1 + (bits >> 32) % 6,
                        cities[(bits >> 40) % 4], heatings[(bits >> 48) % 3], 2 * area);
  }
  return text;
}

Result run_ok(const TemporaryFolder& folder, std::vector<std::string> words) {
  Result result = meshtrain(std::move(words), folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err, result.out);
  return result;
}

void check_refused(const TemporaryFolder& folder, std::vector<std::string> words,
                   const std::vector<std::string>& parts) {
  const Result result = meshtrain(std::move(words), folder.path());
  CHECK_MESSAGE(result.exit_code != 0, result.out);
  for (const std::string& part : parts) {
    CHECK_MESSAGE(contains(result.err, part), part, "\n", result.err);
  }
}

void write_images(const TemporaryFolder& folder, const std::string& name) {
  const DigitImages digits = make_digits(30, 5);
  for (int64_t i = 0; i < 30; ++i) {
    const char* const kind = i % 3 == 0 ? "cat" : i % 3 == 1 ? "dog" : "emu";
    test::write_png(folder.file(fmt::format("{}/{}/{}.png", name, kind, i)),
                    digits.images.data<uint8_t>() + i * 784);
  }
}

// FOLDER/images and a mask of two classes for each, which is the image itself.
void write_masked_images(const TemporaryFolder& folder, const std::string& name) {
  const DigitImages digits = make_digits(30, 5);
  for (int64_t i = 0; i < 30; ++i) {
    std::vector<uint8_t> mask(784);
    const uint8_t* const pixels = digits.images.data<uint8_t>() + i * 784;
    std::transform(pixels, pixels + 784, mask.begin(),
                   [](uint8_t pixel) { return static_cast<uint8_t>(pixel > 127 ? 1 : 0); });
    test::write_png(folder.file(fmt::format("{}/images/{}.png", name, i)), pixels);
    test::write_png(folder.file(fmt::format("{}/masks/{}.png", name, i)), mask.data());
  }
}

std::string idx_bytes(const Shape& shape, const uint8_t* bytes) {
  std::string text = {0, 0, 8, static_cast<char>(shape.size())};
  for (const int64_t size : shape) {
    text += test::big_endian(static_cast<uint32_t>(size));
  }
  return text + std::string(reinterpret_cast<const char*>(bytes),
                            static_cast<size_t>(num_elements(shape)));
}

HostTensor ramp(const Shape& shape, int64_t below) {
  HostTensor tensor(below > 0 ? DType::kInt32 : DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, below > 0 ? static_cast<double>(i % below) : static_cast<double>(i % 7) / 7);
  }
  return tensor;
}

// Every file that configs/WRITE.md names.
void write_page_files(const TemporaryFolder& folder) {
  folder.write("houses.csv", houses_table(200));
  const DigitImages digits = make_digits(120, 5);
  folder.write("digits-images-idx3-ubyte.gz",
               idx_bytes({120, 28, 28}, digits.images.data<uint8_t>()));
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < 120; ++i) {
    labels.push_back(static_cast<uint8_t>(digits.labels.at(i)));
  }
  folder.write("digits-labels-idx1-ubyte.gz", idx_bytes({120}, labels.data()));
  write_images(folder, "pets");
  write_masked_images(folder, "street");
  for (int i = 0; i < 10; ++i) {
    const std::string place = i % 2 == 0 ? "reviews/bad" : "reviews/good";
    std::filesystem::create_directories(folder.file(place));
    folder.write(fmt::format("{}/{}.txt", place, i), "a review");
  }
  const HostTensor x = ramp({60, 5}, 0), y = ramp({60}, 4);
  const NamedTensor arrays[] = {{"x", ramp({60, 5}, 0)}, {"y", ramp({60}, 4)}};
  write_npz(folder.file("arrays.npz"), arrays);
  write_npy(folder.file("x.npy"), x);
  write_npy(folder.file("y.npy"), y);
  std::string tale, ids;
  for (int i = 0; i < 400; ++i) {
    tale += "a cat sat on the mat.\n";
    ids += static_cast<char>(i % 250);
    ids += '\0';
  }
  folder.write("tale.txt", tale);
  folder.write("ids.bin", ids);
  folder.write("poems.txt", tale);
  std::filesystem::copy(std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/gpt2",
                        folder.file("gpt2"));
}

// The logs of a record in JSON, without its times.
std::string logs_of(const std::string& record) {
  return parse_json(record).at("logs").dump();
}

std::vector<std::string> yaml_blocks(const std::string& page) {
  std::ifstream file(std::string(MESHTRAIN_SOURCE_DIR) + "/" + page);
  std::vector<std::string> blocks;
  bool is_open = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "```yaml") {
      is_open = true;
      blocks.emplace_back();
    } else if (line == "```") {
      is_open = false;
    } else if (is_open) {
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE("csv: missing and unknown texts have ids, dates and one-hot texts are numbers") {
  const TemporaryFolder folder;
  folder.write("houses.csv", houses_table(200));
  folder.write("houses.yaml", kHouses);
  CHECK(contains(run_ok(folder, {"validate", "houses.yaml"}).out, "0 errors"));
  run_ok(folder, {"train", "houses.yaml", "-q", "-o", "run"});
  std::ifstream stored(folder.file("run/config.resolved.yaml"));
  const std::string resolved((std::istreambuf_iterator<char>(stored)), {});
  CHECK(contains(resolved, "input_dim: 5"));  // [MASK], [UNK], Bonn, Oslo, Rome
  folder.write("new.csv", "sold,area,city,heating\n2024-02-29,50,Paris,\n2024-03-01,50,,coal\n");
  folder.write("test.csv", houses_table(40));
  const auto results = [&](const std::string& file) {
    run_ok(folder, {"predict", "run", "-i", "new.csv", "-o", file});
    return run_ok(folder, {"evaluate", "run", "-q", "--log-format", "json",
                           "data.test={source: csv, path: test.csv}"})
        .out;
  };
  const std::string logs = results("before.npy");
  fs::remove(folder.file("houses.csv"));
  CHECK(logs_of(results("after.npy")) == logs_of(logs));
  CHECK(folder.read("after.npy") == folder.read("before.npy"));
  CHECK(read_npy(folder.file("after.npy")).shape() == Shape{2, 1});
  folder.write("bad.csv", "sold,area,city,heating\n2024-02-30,50,Rome,gas\n");
  check_refused(folder, {"predict", "run", "-i", "bad.csv", "-o", "p.npy"},
                {"E310", "column `sold` is `2024-02-30`, which is no date", "date_format"});
}

TEST_CASE("csv: the help of a missing or an unknown text names what works") {
  const TemporaryFolder folder;
  folder.write("houses.csv", houses_table(60));
  folder.write("houses.yaml", kHouses);
  check_refused(folder, {"train", "houses.yaml", "~data.train.mask_token"},
                {"E311", "`mask_token: \"[MASK]\"` gives missing texts an id of their own"});
  folder.write("other.csv", "sold,area,rooms,city,heating,price\n2020-01-01,1,1,Paris,gas,1\n");
  check_refused(
      folder,
      {"train", "houses.yaml", "~data.train.oov_token", "~data.split",
       "model.layers.numbers.shape=[6]", "data.validation={source: csv, path: other.csv}"},
      {"E312", "`oov_token: \"[UNK]\"` gives unknown texts of features an id"});
}

TEST_CASE("data.split: random parts with every class of a sorted table") {
  const TemporaryFolder folder;
  std::string table = "x,kind\n";
  for (const char* kind : {"cat", "dog", "emu"}) {
    for (int i = 0; i < 40; ++i) {
      table += fmt::format("{},{}\n", i, kind);
    }
  }
  folder.write("sorted.csv", table);
  folder.write("sorted.yaml", R"(
data:
  train: {source: csv, path: sorted.csv, label: kind}
  split: {validation: 0.25, test: 0.1, seed: 1, stratify: label}
model: {layers: [{Input: {shape: [1]}}, {Dense: {units: 3, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy, metrics: [accuracy]}
)");
  const auto json =
      parse_json(run_ok(folder, {"data", "inspect", "sorted.yaml", "--format", "json"}).out);
  const int64_t sizes[] = {26, 10, 4};
  REQUIRE(json["parts"].size() == 3);
  for (size_t part = 0; part < 3; ++part) {
    const auto& classes = json["parts"][part]["arrays"][1]["classes"];
    REQUIRE(classes.size() == 3);
    for (const auto& one : classes) {
      CHECK(one["samples"] == sizes[part]);
    }
  }
  run_ok(folder, {"train", "sorted.yaml", "-q", "-o", "run"});
  const auto evaluated = [&] {
    const Result result = run_ok(folder, {"evaluate", "run", "--log-format=json"});
    return json_text(parse_json(lines_of(result.out).back())["logs"]);
  };
  const std::string first = evaluated();
  CHECK(evaluated() == first);
  const auto both =
      parse_json(run_ok(folder, {"data", "inspect", "sorted.yaml", "--format", "json",
                                 "data.split={test: 0.5}", "fit.validation_split=0.5"})
                     .out);
  for (const size_t part : {0, 1, 2}) {
    CHECK(both["parts"][part]["samples"] == (part == 2 ? 60 : 30));
  }
  check_refused(folder, {"validate", "sorted.yaml", "fit.validation_split=0.2"},
                {"E113", "`data.split.validation` and `fit.validation_split` exclude each other"});
  check_refused(folder, {"validate", "sorted.yaml", "data.split.stratify=kind"},
                {"E113", "write `stratify: label`"});
}

TEST_CASE("y: x: the samples are the targets, after the transforms") {
  const TemporaryFolder folder;
  write_page_files(folder);
  folder.write("auto.yaml", R"(
data:
  train: {source: idx, images: digits-images-idx3-ubyte.gz, y: x}
  split: {validation: 0.25}
  transform: [{Rescaling: {scale: =1/255}}, {Reshape: {target_shape: [784]}}]
model: {layers: [{Input: {shape: [784]}}, {Dense: {units: 8}}, {Dense: {units: 784, activation: sigmoid}}]}
compile: {optimizer: adam, loss: mse}
)");
  const auto train = parse_json(
      run_ok(folder, {"data", "inspect", "auto.yaml", "--format", "json"}).out)["parts"][0];
  CHECK(train["arrays"][1]["max"] == train["arrays"][0]["max"]);
  CHECK(train["arrays"][1]["shape"] == train["arrays"][0]["shape"]);
  run_ok(folder, {"train", "auto.yaml", "-q"});
  for (const char* source : {"{source: csv, path: houses.csv, features: [area, rooms], y: x}",
                             "{source: image_folder, directory: pets, image_size: [4, 4], y: x}",
                             "{source: digits, samples: 40, y: x}"}) {
    run_ok(folder, {"data", "inspect", "auto.yaml", "~data.transform",
                    fmt::format("data.train={}", source)});
  }
  const std::string arrays[] = {
      "{source: npz, path: arrays.npz, y: x}", "{source: npz, path: arrays.npz, x: [x], y: [x]}",
      "{source: npy, x: x.npy, y: x}", "{source: npy, x: x.npy, y: x.npy}"};
  for (const std::string& source : arrays) {
    CAPTURE(source);
    const auto part = parse_json(
        run_ok(folder, {"data", "inspect", "auto.yaml", "--format", "json",
                        "data.transform=[{Rescaling: {scale: 0.001}}]", "data.train=" + source})
            .out)["parts"][0];
    CHECK(part["arrays"][1]["max"] == part["arrays"][0]["max"]);
    CHECK(part["arrays"][1]["max"].get<double>() < 0.1);
  }
  check_refused(folder, {"validate", "auto.yaml", "data.train.labels=digits-labels-idx1-ubyte.gz"},
                {"E113", "`y: x` and `labels` of `idx` exclude each other"});
  check_refused(folder, {"validate", "auto.yaml", "~data.train.y"},
                {"E112", "`idx` needs `labels`"});
}

TEST_CASE("an output that nothing compares needs no target") {
  const TemporaryFolder folder;
  write_page_files(folder);
  folder.write("two.yaml", R"(
data: {train: {source: csv, path: houses.csv, features: [area, rooms], label: {price: price}}}
model:
  layers:
    - Input: {shape: [2]}
    - Dense: {name: hidden, units: 3}
    - Dense: {name: price, units: 1}
  outputs: [hidden, price]
compile: {loss: {price: mse}, optimizer: adam}
fit: {validation_split: 0.25}
)");
  run_ok(folder, {"validate", "--data", "two.yaml"});
  run_ok(folder, {"train", "two.yaml", "-o", "two", "-q"});
  run_ok(folder, {"evaluate", "two", "evaluate.on=train"});
  run_ok(folder, {"predict", "two", "-i", "houses.csv", "-o", "p.npz"});
  check_refused(folder, {"validate", "two.yaml", "compile.metrics=[mae]"},
                {"E324", "1 target array, the model has 2 outputs",
                 "an output without a loss and without metrics needs none"});
}

TEST_CASE("validate: what train would refuse, from the files, at its place") {
  const TemporaryFolder folder;
  write_page_files(folder);
  folder.write("houses.yaml", kHouses);
  check_refused(folder, {"validate", "houses.yaml", "data.train.label=prize"},
                {"E310", "has no column `prize`", "did you mean `price`?"});
  check_refused(
      folder, {"validate", "houses.yaml", "model.layers.numbers.shape=[6]"},
      {"E324", "samples have shape (7,), input `numbers` takes (6,)", "write `shape: [7]`"});
  check_refused(folder, {"validate", "houses.yaml", "fit.initial_weights=none.safetensors"},
                {"E404", "command line:1:21"});
  check_refused(folder,
                {"validate", "houses.yaml", "data.train.label=prize",
                 "data.train.features.numbers=[arae, sold]"},
                {"no column `prize`", "no column `arae`"});
  check_refused(folder, {"validate", "houses.yaml", "plan.hardware=none.yaml"},
                {"E100", "command line:1:15"});
  const Result large = meshtrain({"validate", "houses.yaml", "fit.batch_size=1000"}, folder.path());
  CHECK(large.exit_code == 0);
  CHECK(contains(large.err, "warning[W316]"));
  CHECK(contains(large.err, "fit.batch_size"));
  const std::string rule = "distribution={layout_map: {d9/kernel: [null, batch]}}";
  check_refused(folder, {"validate", "houses.yaml", rule, "fit.epoch=3"},
                {"E111", "E202", "d9/kernel"});
  check_refused(folder, {"validate", "houses.yaml", rule, "data.train.label=prize"},
                {"E310", "E202"});
  check_refused(folder,
                {"validate", "houses.yaml", "~data.split", "data.validation={slice: \"[5:]\"}"},
                {"this names no data source", "`{source: csv, slice: ...}`"});
  const Result twice = meshtrain({"validate", "houses.yaml", "data.train.path=nofile.csv",
                                  "~data.split", "data.validation={source: csv, path: houses.csv}"},
                                 folder.path());
  CHECK_MESSAGE(contains(twice.out, ": 1 error,"), twice.err);
  folder.write("digits.yaml", R"(
data: {train: {source: idx, images: digits-images-idx3-ubyte.gz, labels: digits-labels-idx1-ubyte.gz}}
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: {units: 5, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
)");
  check_refused(folder, {"validate", "digits.yaml"},
                {"E312", "the 5 classes are the whole numbers 0..4"});
  run_ok(folder, {"validate", "digits.yaml", "model.layers.2.Dense.units=10"});
  check_refused(folder, {"validate", "digits.yaml", "model.layers.0.Input.shape=[28, 28]"},
                {"E324",
                 "write `shape: [28, 28, 1]` in the Input, or `data: {transform: "
                 "[{Reshape: {target_shape: [28, 28]}}]}`"});
  check_refused(folder,
                {"validate", "digits.yaml", "model.layers.2.Dense.units=2",
                 "data.train={source: image_folder, directory: pets, image_size: [28, 28], "
                 "color_mode: grayscale}"},
                {"E312", "the 2 classes are the whole numbers 0..1"});
}

TEST_CASE("validate: of a large table the beginning, with --data all") {
  const TemporaryFolder folder;
  std::string large = "a,y\n";
  while (large.size() < size_t{17} << 20) {
    large += "1234.5678,8765.4321\n";
  }
  folder.write("large.csv", large + "one,2\n");
  folder.write("large.yaml",
               "data: {train: {source: csv, path: large.csv, label: y}}\n"
               "model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}\n"
               "compile: {loss: mse}\n");
  run_ok(folder, {"validate", "large.yaml"});
  check_refused(folder, {"validate", "large.yaml", "--data"}, {"E310", "column `a` is `one`"});
  check_refused(folder, {"validate", "large.yaml", "model.layers.0.Input.shape=[2]"}, {"E324"});
  check_refused(folder, {"validate", "large.yaml", "data.train.separator=;"},
                {"E310", "`separator: \",\"`"});
}

TEST_CASE("data inspect: any table and text without a config") {
  const TemporaryFolder folder;
  write_page_files(folder);
  const std::string table = run_ok(folder, {"data", "inspect", "houses.csv"}).out;
  for (const char* part : {"200 rows, 6 columns, separator `,`, a header", "most frequent",
                           "sold     date", "heating  text", "row 1: sold=20"}) {
    CHECK_MESSAGE(contains(table, part), part, "\n", table);
  }
  const auto json =
      parse_json(run_ok(folder, {"data", "inspect", "houses.csv", "--format", "json"}).out);
  const auto& city = json["parts"][0]["table"]["columns"][3];
  CHECK(city["type"] == "text");
  CHECK(city["distinct"] == 3);
  CHECK(city["missing"].get<int>() > 0);
  const std::string text = run_ok(folder, {"data", "inspect", "tale.txt"}).out;
  for (const char* part :
       {"8,800 characters, 400 lines, 12 different characters", "U+0020", "begins: \"a cat"}) {
    CHECK_MESSAGE(contains(text, part), part, "\n", text);
  }
  folder.write("houses.yaml", kHouses);
  const std::string parts = run_ok(folder, {"data", "inspect", "houses.yaml"}).out;
  CHECK_MESSAGE(contains(parts, "in the files: 200 rows"), parts);
  CHECK_MESSAGE(contains(parts, "sample 0: numbers = "), parts);
  CHECK_MESSAGE(contains(parts, "ids of city: 0 [MASK], 1 [UNK], 2 Bonn, 3 Oslo, 4 Rome"), parts);
  folder.write("t.parquet", "PAR1........");
  check_refused(folder, {"data", "inspect", "t.parquet"},
                {"E327", "is a Parquet file", "pandas.read_parquet"});
  check_refused(folder, {"train", "houses.yaml", "data.train.path=t.parquet"},
                {"E327", "pandas.read_parquet"});
}

TEST_CASE("a text in one line is a text, whatever separates its words") {
  const TemporaryFolder folder;
  std::string tale;
  for (int i = 0; i < 40; ++i) {
    tale += "Once upon a time there was a fox, it ran, and ran; ";
  }
  folder.write("tale.txt", tale);
  CHECK(contains(run_ok(folder, {"data", "inspect", "tale.txt"}).out, "text tale.txt"));
  folder.write("draft.yaml", run_ok(folder, {"init", "--from", "tale.txt"}).out);
  run_ok(folder, {"validate", "draft.yaml"});
}

TEST_CASE("init --from: drafts validate and train as they are") {
  const TemporaryFolder folder;
  write_page_files(folder);
  std::string people = "PassengerId;Survived;Name;Sex;Age;Cabin\n";
  for (int i = 1; i <= 90; ++i) {
    people +=
        fmt::format("{};{};\"Doe; {}\";{};{};{}\n", i, i % 3 == 0, i, i % 2 ? "male" : "female",
                    i % 5 ? std::to_string(i) : "", i % 4 ? "" : "C" + std::to_string(i));
  }
  folder.write("people.csv", people);
  for (const char* from : {"houses.csv", "people.csv", "pets", "arrays.npz", "tale.txt",
                           "digits-images-idx3-ubyte.gz"}) {
    CAPTURE(from);
    folder.write("draft.yaml", run_ok(folder, {"init", "--from", from}).out);
    CHECK(contains(run_ok(folder, {"validate", "draft.yaml"}).out, ": 0 errors, 0 warnings"));
    run_ok(folder, {"train", "draft.yaml", "-q", "fit.epochs=1"});
  }
  const std::string draft = run_ok(folder, {"init", "--from", "people.csv"}).out;
  for (const char* part :
       {"label: Survived", "# Left out: `PassengerId`: it numbers the rows.", "# Left out: `Name`",
        "one_hot: [Sex]", "separator: \";\"", "missing: mean"}) {
    CHECK_MESSAGE(contains(draft, part), part, "\n", draft);
  }
  CHECK(contains(run_ok(folder, {"init", "--from", "people.csv", "--label", "Sex"}).out,
                 "label: Sex"));
  folder.write("latin1.csv", "gr\xf6sse,y\n1,0\n2,1\n3,0\n");
  check_refused(folder, {"init", "--from", "latin1.csv"},
                {"the name of the column `gr?sse` is no UTF-8"});
  check_refused(folder, {"init", "--from", "people.csv", "--label", "Age"},
                {"E311", "labels are missing"});
  check_refused(folder, {"init", "--from", "people.csv", "--label", "Sec"},
                {"E310", "did you mean `Sex`?"});
}

TEST_CASE("init --from: drafts of a few rows validate and train") {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> kTables[] = {
      {"two numbers", "a,y\n1.5,2.5\n2.25,3.5\n"},
      {"four numbers", "a,y\n1.5,2.5\n2.25,3.5\n3.5,4.25\n4.5,5.75\n"},
      {"two classes", "a,y\n1.5,cat\n2.25,dog\n"},
      {"four rows, two classes", "a,y\n1.5,cat\n2.25,dog\n3.5,cat\n4.5,dog\n"},
      {"five rows, two classes", "a,y\n1.5,cat\n2.25,dog\n3.5,cat\n4.5,dog\n5.5,dog\n"}};
  for (const auto& [what, text] : kTables) {
    CAPTURE(what);
    folder.write("few.csv", text);
    folder.write("draft.yaml", run_ok(folder, {"init", "--from", "few.csv"}).out);
    CHECK(contains(run_ok(folder, {"validate", "draft.yaml"}).out, ": 0 errors, 0 warnings"));
    run_ok(folder, {"train", "draft.yaml", "-q", "fit.epochs=2"});
  }
}

TEST_CASE("init --from: a text that the training rows lack does not blow a prediction up") {
  const TemporaryFolder folder;
  std::string table = ",area,city,price\n";  // with the index that pandas writes
  for (int i = 0; i < 100; ++i) {
    table += fmt::format("{},{},{},{}\n", i, 40 + i,
                         i == 3  ? "Ulm"
                         : i % 2 ? "Rome"
                                 : "Bonn",
                         2000 * (40 + i));
  }
  folder.write("flats.csv", table);
  folder.write("draft.yaml", run_ok(folder, {"init", "--from", "flats.csv"}).out);
  CHECK(contains(folder.read("draft.yaml"), "it has no name, as an index that pandas wrote"));
  run_ok(folder, {"train", "draft.yaml", "-q", "-o", "run"});
  folder.write("new.csv", "area,city,price\n100,Rome,1\n100,Paris,1\n");
  std::string names = "city,y\n";  // nothing but a column of ids
  for (int i = 0; i < 60; ++i) {
    names += fmt::format("c{},{}\n", i % 12, i % 2);
  }
  folder.write("names.csv", names);
  folder.write("ids.yaml", run_ok(folder, {"init", "--from", "names.csv"}).out);
  run_ok(folder, {"train", "ids.yaml", "-q", "fit.epochs=1"});
  const std::vector<std::string> rows =
      lines_of(run_ok(folder, {"predict", "run", "-i", "new.csv", "-o", "-", "-q"}).out);
  REQUIRE(rows.size() == 3);
  CHECK(std::abs(std::stod(rows[2])) < 1e6);
}

TEST_CASE("init --from: sentences become words, hot rows classes, parts of archives parts") {
  const TemporaryFolder folder;
  std::string reviews = "review,good\n";
  for (int i = 0; i < 60; ++i) {
    reviews += fmt::format("the film number {} was {},{}\n", i, i % 2 ? "a joy" : "no fun",
                           i % 2 ? "yes" : "no");
  }
  folder.write("reviews.csv", reviews);
  folder.write("words.yaml", run_ok(folder, {"init", "--from", "reviews.csv"}).out);
  CHECK(contains(folder.read("words.yaml"), "TextVectorization: {column: review"));
  const Result learned = run_ok(folder, {"train", "words.yaml", "fit.epochs=20", "-q"});
  CHECK_MESSAGE(contains(learned.out, "accuracy: 1.0000"), learned.out);

  HostTensor x(DType::kFloat32, {40, 3}), one(DType::kFloat32, {40, 4}),
      some(DType::kInt32, {40, 4});
  for (int64_t i = 0; i < 40; ++i) {
    x.set(3 * i, static_cast<double>(i % 7));
    one.set(4 * i + i % 4, 1);
    some.set(4 * i + i % 4, 1);
    some.set(4 * i + i % 3, 1);
  }
  const auto draft_of = [&](const std::vector<NamedTensor>& tensors) {
    write_npz(folder.file("a.npz"), tensors);
    folder.write("a.yaml", run_ok(folder, {"init", "--from", "a.npz"}).out);
    run_ok(folder, {"train", "a.yaml", "fit.epochs=1", "-q", "-o", "run_" + tensors[0].name});
    return folder.read("a.yaml");
  };
  std::vector<NamedTensor> arrays;
  arrays.push_back({"x_test", x.clone()});
  arrays.push_back({"y_test", one.clone()});
  arrays.push_back({"x_train", x.clone()});
  arrays.push_back({"y_train", one.clone()});
  const std::string parts = draft_of(arrays);
  CHECK(contains(parts, "x: x_train"));
  CHECK(contains(parts, "x: x_test, y: y_test}"));
  CHECK(contains(parts, "categorical_crossentropy"));
  // The archive itself can be predicted from: the samples are those that the model was trained on.
  run_ok(folder, {"predict", "run_x_test", "-i", "a.npz", "-o", "y.npy", "-q"});
  arrays.clear();
  arrays.push_back({"images", x.clone()});
  arrays.push_back({"labels", some.clone()});
  CHECK(contains(draft_of(arrays), "binary_crossentropy"));
  run_ok(folder, {"predict", "run_images", "-i", "a.npz", "-o", "y.npy", "-q"});
}

TEST_CASE("files without rows, labels out of range and texts as numbers end in messages") {
  const TemporaryFolder folder;
  folder.write("none.csv", "\n\n");
  check_refused(folder, {"init", "--from", "none.csv"}, {"E310", "has no rows"});
  folder.write("same.csv", "a,y\n1,p\n2,p\n3,p\n");
  check_refused(folder, {"init", "--from", "same.csv"}, {"E327", "is the same in each row"});
  folder.write("labels.csv", "a,y\n1,1\n2,2\n3,3\n1,2\n");
  const std::string model = R"(
model: {layers: [{Input: {shape: [1]}}, {Dense: {units: 3, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {batch_size: 2}
)";
  folder.write("labels.yaml", "data: {train: {source: csv, path: labels.csv, label: y}}" + model);
  check_refused(folder, {"validate", "labels.yaml", "--data"}, {"E312", "counted from 1?"});
  folder.write("prices.csv", "rooms;price\n2;100000,50\n3;90000,00\n5;250000,75\n");
  folder.write("prices.yaml",
               "data: {train: {source: csv, path: prices.csv, label: price, separator: \";\"}}\n"
               "model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}\ncompile: {loss: mse}\n"
               "fit: {batch_size: 2}\n");
  check_refused(folder, {"validate", "prices.yaml", "--data"},
                {"E312", "takes numbers, and the labels are 3 texts"});
}

TEST_CASE("headers of numbers, categories as other digits, caches beside sizes of the data") {
  const TemporaryFolder folder;
  std::string table = "0,1,2,label\n";
  for (int i = 0; i < 40; ++i) {
    table += fmt::format("{},{},k{},{}\n", i % 5, i % 3, i % 9, i % 3);
  }
  folder.write("t.csv", table);
  CHECK(contains(run_ok(folder, {"data", "inspect", "t.csv"}).out, "40 rows"));
  folder.write("t.yaml", R"(
data: {cache: memory, train: {source: csv, path: t.csv, label: label, features: ["0", "1"]}}
model: {layers: [{Input: {shape: [2]}}, {Dense: {name: d, units: =8 * num_classes()}}, {Dense: {units: 3, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {batch_size: 8}
)");
  CHECK(contains(run_ok(folder, {"config", "show", "t.yaml"}).out, "units: 24"));
  CHECK(contains(run_ok(folder, {"config", "show", "t.yaml", "model.layers.d.units=5"}).out,
                 "units: 5"));
  CHECK(contains(run_ok(folder, {"data", "inspect", "t.yaml"}).out, "40 samples"));

  folder.write("k.csv", "k,y\n1,a\n2,b\n1,a\n2,b\n");
  folder.write("k.yaml", R"(
data: {train: {source: csv, path: k.csv, label: y, features: {k: k}, categorical: [k], oov_token: "[UNK]"}}
model: {layers: [{Input: {name: k, shape: [], dtype: int32}}, {Embedding: {input_dim: =vocabulary_size("k"), output_dim: 2}}, {Dense: {name: class, units: 2, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {batch_size: 2, epochs: 3}
)");
  run_ok(folder, {"train", "k.yaml", "-q", "-o", "run"});
  const auto predicted = [&](const std::string& file) {
    return run_ok(folder, {"predict", "run", "-i", file, "-o", "-", "-q"}).out;
  };
  folder.write("points.csv", "k,y\n1.0,a\n2.0,b\n1.0,a\n2.0,b\n");
  CHECK(predicted("points.csv") == predicted("k.csv"));
  const std::string jsonl =
      run_ok(folder, {"predict", "run", "-i", "k.csv", "-o", "-", "-q", "--format", "jsonl"}).out;
  CHECK(contains(jsonl, "\"class_output\":["));  // the layer is called as the column of names
}

// The lines of a draft that begin with one of the words.
std::string drafted(const TemporaryFolder& folder, const std::string& file,
                    const std::vector<std::string>& keys) {
  std::string out;
  for (const std::string& line : lines_of(run_ok(folder, {"init", "--from", file}).out)) {
    const std::string text = line.substr(std::min(line.size(), line.find_first_not_of(' ')));
    for (const std::string& key : keys) {
      out += text.starts_with(key) ? text + "\n" : "";
    }
  }
  return out;
}

TEST_CASE("headers that pandas wrote, years, and a word over numbers are headers") {
  const TemporaryFolder folder;
  const auto header = [&](const std::string& first, bool has_fractions) {
    std::string table = first + "\n";
    for (int i = 0; i < 30; ++i) {
      table += has_fractions ? fmt::format("{}.5,{}.25,{}\n", i * 7 % 5, i % 3, i % 2)
                             : fmt::format("{},{},{}\n", i * 7 % 5, i % 3, i % 2);
    }
    folder.write("t.csv", table);
    return drafted(folder, "t.csv", {"header:"});
  };
  CHECK(header("0,1,2", true) == "header: true\n");
  CHECK(header("2018,2019,2020", true) == "header: true\n");
  CHECK(header("height,1,2", true) == "header: true\n");
  CHECK(header("0,1,2", false) == "header: false\n");  // it may be a sample
  CHECK(header("?,1,1", true) == "header: false\n");   // a number that is missing
  CHECK(header("3.5,1.5,1", true) == "header: false\n");
  std::string wide = "0,1,2,3,4\n";
  for (int i = 0; i < 20; ++i) {
    wide += fmt::format("{},{},{},{},{}\n", i % 3, i % 5, i % 4, i % 7, i % 2);
  }
  folder.write("w.csv", wide);
  CHECK(drafted(folder, "w.csv", {"header:"}) == "header: true\n");
}

TEST_CASE("commas and points of thousands are no decimals") {
  const TemporaryFolder folder;
  std::string us = "income;age;y\n", de = "area;price;y\n", exact = "a;b;y\n";
  for (int i = 0; i < 30; ++i) {
    us += i % 3 == 0 ? fmt::format("{};{};{}\n", 500 + i, 20 + i, i % 2)
                     : fmt::format("{},{:03};{};{}\n", 10 + i, i * 31, 20 + i, i % 2);
    de += i % 3 == 0 ? fmt::format("{},5;{},25;{}\n", 30 + i, 400 + i, i % 2)
                     : fmt::format("{},5;1.{:03},25;{}\n", 30 + i, 100 + i, i % 2);
    exact += fmt::format("{},{:03};{};{}\n", 10 + i, i * 31 % 1000, i, i % 2);
  }
  folder.write("us.csv", us);
  CHECK(drafted(folder, "us.csv", {"decimal:", "features:"}) == "features: [age]\n");
  folder.write("de.csv", de);
  CHECK(drafted(folder, "de.csv", {"decimal:"}) == "decimal: \",\"\n");
  const std::string seen = run_ok(folder, {"data", "inspect", "de.csv"}).out;
  CHECK_MESSAGE(contains(seen, "1129.25"), seen);  // the largest price
  folder.write("exact.csv", exact);                // three decimals in every row
  CHECK(drafted(folder, "exact.csv", {"decimal:"}) == "decimal: \",\"\n");
}

TEST_CASE("decimal commas are those of numbers, and texts stay as they are") {
  const TemporaryFolder folder;
  folder.write("t.csv", "a;b;y\n1.234,5;1.234.567;0\n2,5;192.168.100.200;1\n3;1.234,5 EUR;1\n");
  folder.write("t.yaml", R"(
data: {train: {source: csv, path: t.csv, separator: ";", decimal: ",", label: y, categorical: [b]}}
model: {layers: [{Input: {shape: [2]}}, {Dense: {units: 1, activation: sigmoid}}]}
compile: {loss: binary_crossentropy}
)");
  const std::string seen = run_ok(folder, {"data", "inspect", "t.yaml"}).out;
  CHECK_MESSAGE(contains(seen, "1234.5"), seen);
  run_ok(folder, {"validate", "t.yaml", "--data",
                  "data.train.vocabulary={b: [1.234.567, 192.168.100.200, '1.234,5 EUR']}"});
  folder.write("t.csv", "a;b;y\n1,5;x;0\n48.14;y;1\n");
  check_refused(folder, {"validate", "t.yaml", "--data"},
                {"E310", "is `48.14`, which is no number with a decimal comma"});
}

TEST_CASE("codes are other texts than numbers of the same value") {
  const TemporaryFolder folder;
  folder.write("t.csv", "zip,y\n1244,0\n2000,1\n3,1\n");
  folder.write("t.yaml", R"(
data: {train: {source: csv, path: t.csv, label: y, features: [zip], categorical: [zip], oov_token: "[UNK]"}}
model: {layers: [{Input: {shape: [1], dtype: int32}}, {Embedding: {input_dim: 4, output_dim: 1}}, Flatten]}
compile: {loss: mse}
)");
  run_ok(folder, {"train", "t.yaml", "-q", "-o", "run"});
  folder.write("x.csv", "zip\n1244\n01244\n+1244\n2e3\n1244.0\n1244.00\n1244.5\n[UNK]\n");
  run_ok(folder, {"predict", "run", "-i", "x.csv", "-o", "y.npy"});
  const HostTensor y = read_npy(folder.file("y.npy"));
  REQUIRE(y.size() == 8);
  const std::vector<bool> is_1244 = {true, false, false, false, true, true, false, false};
  for (int64_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK((y.at(i) == y.at(0)) == is_1244[static_cast<size_t>(i)]);
    CHECK((y.at(i) == y.at(7)) == !is_1244[static_cast<size_t>(i)]);
  }
}

TEST_CASE("texts of several columns of labels are no numbers either") {
  const TemporaryFolder folder;
  folder.write("t.csv", "x,p,q,r\n1,12 EUR,no,yes\n2,13 EUR,yes,yes\n3,14 EUR,unknown,yes\n");
  folder.write("t.yaml", R"(
data: {train: {source: csv, path: t.csv, features: [x], label: [x, p]}}
model: {layers: [{Input: {shape: [1]}}, {Dense: {units: 2, activation: sigmoid}}]}
compile: {loss: mse}
)");
  check_refused(folder, {"validate", "t.yaml", "--data"},
                {"E312", "`p`: `MeanSquaredError` takes numbers, and the labels are 3 texts"});
  check_refused(
      folder, {"train", "t.yaml", "data.train.label=[q, p]", "compile.loss=binary_crossentropy"},
      {"E312", "`BinaryCrossentropy` takes yes and no, and the labels are several texts"});
  check_refused(folder,
                {"train", "t.yaml", "data.train.label=[x, r]", "compile.loss=binary_crossentropy"},
                {"E312",
                 "`r`: `BinaryCrossentropy` takes yes and no, and the labels are one text: "
                 "`yes`"});
}

TEST_CASE("numbers of tables have the digits of a float64 model") {
  const TemporaryFolder folder;
  folder.write("t.csv", "x,y\n1000000.123,0.5\n1000000.456,1\n");
  folder.write("t.yaml", R"(
dtype_policy: float64
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}
compile: {loss: mse}
)");
  CHECK(contains(run_ok(folder, {"data", "inspect", "t.yaml"}).out, "float64"));
  CHECK(!contains(run_ok(folder, {"data", "inspect", "t.yaml", "data.train.dtype=float32"}).out,
                  "float64"));
}

TEST_CASE("a separator is a tab however it is written, and `class_weight` names classes") {
  const TemporaryFolder folder;
  folder.write("t.tsv", "a\tb\ty\n1\t2\tred\n3\t4\tblue\n");
  for (const char* tab : {"tab", "\"\\t\"", "'\\t'"}) {
    folder.write("t.yaml", fmt::format(R"(
data: {{train: {{source: csv, path: t.tsv, label: y, separator: {}}}}}
model: {{layers: [{{Input: {{shape: [2]}}}}, {{Dense: {{units: 2, activation: softmax}}}}]}}
compile: {{loss: sparse_categorical_crossentropy}}
)",
                                       tab));
    run_ok(folder, {"validate", "t.yaml"});
    CHECK(contains(run_ok(folder, {"config", "show", "t.yaml"}).out, "separator: tab"));
  }
  for (const char* source : {"t.tsv", "{source: random, shape: [2], classes: 2, samples: 8}"}) {
    check_refused(folder,
                  {"validate", "t.yaml", "fit.class_weight={grey: 2}",
                   source[0] == '{' ? fmt::format("data.train={}", source)
                                    : fmt::format("data.train.path={}", source)},
                  {"E112", "`grey` of `class_weight` is no class"});
  }
}

TEST_CASE("JSON is refused with the line that converts it") {
  const TemporaryFolder folder;
  folder.write("t.jsonl", "{\"a\": 1}\n");
  const Result result = meshtrain({"init", "--from", "t.jsonl"}, folder.path());
  CHECK(result.exit_code == 3);
  CHECK(contains(result.err, "error[E327]"));
  CHECK(contains(result.err, "pandas.read_json"));
  CHECK(contains(result.err, "lines=True"));
}

TEST_CASE("`evaluate.on` needs its data before training") {
  const TemporaryFolder folder;
  folder.write("t.yaml", R"(
data: {train: {source: random, samples: 8, shape: [3], labels: [1]}}
model: {layers: [{Input: {shape: [3]}}, {Dense: 1}]}
compile: {loss: mse}
)");
  for (const char* part : {"test", "validation"}) {
    const Result lacks =
        meshtrain({"validate", "t.yaml", std::string("evaluate.on=") + part}, folder.path());
    CHECK(lacks.exit_code == 3);
    CHECK_MESSAGE(contains(lacks.err, std::string("the config names no `data.") + part), lacks.err);
  }
}

TEST_CASE("csv files in gzip are read, profiled and drafted") {
  const TemporaryFolder folder;
  write_page_files(folder);
  folder.write("houses.yaml", kHouses);
  const std::string text = folder.read("houses.csv");
  const gzFile packed = gzopen(folder.file("houses.csv.gz").c_str(), "wb");
  REQUIRE(packed != nullptr);
  CHECK(gzwrite(packed, text.data(), static_cast<unsigned>(text.size())) > 0);
  CHECK(gzclose(packed) == Z_OK);
  run_ok(folder, {"train", "houses.yaml", "-q", "-o", "plain"});
  run_ok(folder, {"train", "houses.yaml", "-q", "-o", "packed", "data.train.path=houses.csv.gz"});
  CHECK(folder.read("plain/weights.safetensors") == folder.read("packed/weights.safetensors"));
  CHECK(contains(run_ok(folder, {"data", "inspect", "houses.csv.gz"}).out, "200 rows, 6 columns"));
  folder.write("draft.yaml", run_ok(folder, {"init", "--from", "houses.csv.gz"}).out);
  run_ok(folder, {"validate", "draft.yaml"});
  const std::string bytes = folder.read("houses.csv.gz");
  folder.write("cut.csv.gz", bytes.substr(0, bytes.size() / 2));
  check_refused(folder, {"validate", "houses.yaml", "data.train.path=cut.csv.gz"},
                {"E310", "the compressed data end early"});
}

TEST_CASE("labels that binary crossentropy does not take are refused before training") {
  const TemporaryFolder folder;
  folder.write("t.csv", "a,y\n1.5,1\n2.25,2\n3.5,1\n4.5,2\n");
  folder.write("c.yaml", R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Dense: {units: 1, activation: sigmoid}}]}
compile: {loss: binary_crossentropy}
)");
  for (const char* word : {"validate", "train"}) {
    check_refused(
        folder, {word, "c.yaml"},
        {"E312", "sample 1 has the label 2; `BinaryCrossentropy` takes labels from 0 to 1",
         "1 more labels are outside", "`categorical` of a csv"});
  }
  run_ok(folder, {"validate", "c.yaml", "data.train.categorical=[y]"});
  run_ok(folder, {"validate", "c.yaml", "compile.loss=mse"});
}

TEST_CASE("masks: trained with their images, evaluated by class, predicted as PNG files") {
  const TemporaryFolder folder;
  write_masked_images(folder, "street");
  folder.write("masks.yaml", R"(
seed: 1
data:
  train:
    source: image_folder
    directory: street/images
    masks: street/masks
    mask_values: [1, 0]
    image_size: 28
    color_mode: grayscale
    class_names: [ink, paper]
  split: {validation: 0.3}
  transform: [{RandomFlip: horizontal}, {RandomTranslation: {height_factor: 0.1, width_factor: 0.1}}]
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Rescaling: {scale: =1/255}
    - Conv2D: {filters: 2, kernel_size: 1, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.3}}, loss: sparse_categorical_crossentropy}
fit: {batch_size: 7, epochs: 12, class_weight: {ink: 4}}
)");
  run_ok(folder, {"train", "masks.yaml", "-q", "-o", "run"});
  const std::string details = run_ok(folder, {"evaluate", "run", "--details"}).out;
  CHECK(contains(details, "conv2d: 9 samples, accuracy 0.9"));
  CHECK(contains(details, "\nink  "));
  CHECK(contains(details, "of pixels, mean IoU 0."));
  CHECK(contains(run_ok(folder, {"predict", "run", "-i", "street/images", "-o", "found/"}).err,
                 "wrote 30 masks to found/: pixels are numbers of `mask_values`"));
  int64_t right = 0;
  for (int i = 0; i < 30; ++i) {
    const Image found = read_image(folder.file(fmt::format("found/{}.png", i)), kAsStored);
    const Image wanted = read_image(folder.file(fmt::format("street/masks/{}.png", i)), kAsStored);
    REQUIRE(found.num_bytes() == 784);
    for (size_t at = 0; at < 784; ++at) {
      right += found.pixels.get()[at] == wanted.pixels.get()[at] ? 1 : 0;
    }
  }
  CHECK(right > 30 * 784 * 9 / 10);
  for (const char* place : {"street/images/", "street/masks/"}) {
    check_refused(folder, {"predict", "run", "-i", "street/images", "-o", place}, {"E140"});
  }
  check_refused(
      folder,
      {"train", "masks.yaml", "compile.loss=binary_crossentropy", "model.layers.conv2d.filters=1",
       "model.layers.conv2d.activation=sigmoid", "data.train.mask_values=[9, 0, 1]",
       "~fit.class_weight", "~data.train.class_names"},
      {"E312", "`BinaryCrossentropy` takes labels from 0 to 1"});
  check_refused(folder, {"train", "masks.yaml", "data.train.y=x"}, {"E113", "exclude each other"});
  run_ok(folder, {"train", "masks.yaml", "-q", "fit.epochs=1", "compile.loss=dice",
                  "data.label={one_hot: 2}", "~fit.class_weight"});
  const Result draft = run_ok(folder, {"init", "--from", "street"});
  CHECK(contains(draft.out, "# 30 images with masks of 2 classes."));
  folder.write("draft.yaml", draft.out);
  run_ok(folder, {"train", "draft.yaml", "-q", "fit.epochs=1"});
  check_refused(folder, {"train", "masks.yaml", "data.train.masks=street/*/*.png"},
                {"E113", "`masks` has more than one `*`"});
  check_refused(folder, {"train", "masks.yaml", "data.train.masks=street/images/*_mask.png"},
                {"E300", "30 of 30 images have no mask in `street/images/*_mask.png`"});
  check_refused(folder, {"train", "masks.yaml", "~data.train.masks"},
                {"E113", "`mask_values` is of `masks`, which is not given"});
}

TEST_CASE("csv: a column names images, whose tags or masks are targets") {
  const TemporaryFolder folder;
  write_masked_images(folder, "street");
  std::string table = "name,wet,cold\n";
  for (int i = 0; i < 30; ++i) {
    table += fmt::format("{},{},{}\n", i, i % 2, i % 3 == 0 ? 1 : 0);
  }
  folder.write("street.csv", table);
  folder.write("tags.yaml", R"(
data:
  train:
    source: csv
    path: street.csv
    label: [wet, cold]
    features: {photo: name}
    preprocessing:
      - Image: {column: name, directory: street/images, extension: .png, image_size: [14, 20], color_mode: grayscale}
  split: {validation: 0.3}
model:
  layers:
    - Input: {name: photo, shape: [14, 20, 1]}
    - Flatten
    - Rescaling: {scale: =1/255}
    - Dense: {units: 2, activation: sigmoid}
compile: {loss: binary_crossentropy}
fit: {batch_size: 7}
)");
  run_ok(folder, {"train", "tags.yaml", "-q", "-o", "run"});
  const std::string details = run_ok(folder, {"evaluate", "run", "--details"}).out;
  CHECK(contains(details, "of labels; all labels are right in"));
  CHECK(contains(details, "\nwet  "));
  CHECK(contains(details, "street/images/"));
  folder.write("new.csv", "name\n3\n4\n");
  CHECK(contains(run_ok(folder, {"predict", "run", "-i", "new.csv", "-o", "-"}).out,
                 "street/images/4.png,"));
  folder.write("masks.yaml", R"(
data:
  train:
    source: csv
    path: street.csv
    label: mask
    features: {photo: name}
    preprocessing:
      - Image: {column: name, directory: street/images, extension: .png, image_size: 14, color_mode: grayscale}
      - Mask: {column: mask, directory: street/masks, extension: .png, image_size: 14}
model:
  layers:
    - Input: {name: photo, shape: [14, 14, 1]}
    - Conv2D: {filters: 2, kernel_size: 3, padding: same, activation: softmax}
compile: {loss: sparse_categorical_crossentropy}
fit: {batch_size: 7}
)");
  std::string masked = "name,mask\n";
  for (int i = 0; i < 30; ++i) {
    masked += fmt::format("{},{}\n", i, i);
  }
  folder.write("street.csv", masked);
  run_ok(folder, {"train", "masks.yaml", "-q", "-o", "masked"});
  run_ok(folder, {"predict", "masked", "-i", "new.csv", "-o", "found/"});
  CHECK(std::filesystem::exists(folder.file("found/3.png")));
  folder.write("street.csv", table);
  folder.write("gone.csv", "name,wet,cold\n3,1,1\n33,1,0\n");
  check_refused(folder, {"train", "tags.yaml", "data.train.path=gone.csv"},
                {"E300", "row 2 (line 3) column `name` is `33`, and there is no file",
                 "street/images/33.png", "`extension` stands behind each name"});
  check_refused(folder, {"train", "tags.yaml", "~data.train.features", "data.train.label=wet"},
                {"E310", "the array `x` has `name`, which is of files, and other columns"});
}

TEST_CASE("configs/WRITE.md: every block is read, a whole config is trained") {
  const TemporaryFolder folder;
  write_page_files(folder);
  const std::vector<std::string> blocks = yaml_blocks("configs/WRITE.md");
  CHECK(blocks.size() >= 10);
  for (const std::string& block : blocks) {
    CAPTURE(block);
    if (contains(block, "model:\n")) {
      folder.write("block.yaml", block);
      run_ok(folder, {"validate", "block.yaml"});
      run_ok(folder, {"train", "block.yaml", "-q"});
      continue;
    }
    folder.write("block.yaml", block +
                                   "model: {layers: [{Input: {shape: [1]}}, {Dense: 1}]}\n"
                                   "compile: {loss: mse}\nfit: {batch_size: 4}\n");
    run_ok(folder, {"data", "inspect", "block.yaml"});
  }
}

}  // namespace meshtrain
