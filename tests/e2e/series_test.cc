// Windows over rows in the order of time, from training to prediction.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "command.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

Result ok(const TemporaryFolder& folder, const std::vector<std::string>& args) {
  const Result result = meshtrain(args, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return result;
}

// Two stores in turn, `rows` days each; some sales are missing.
void write_stores(const TemporaryFolder& folder, const char* file, int rows) {
  std::string text = "store,day,sales,promo\n";
  for (int i = 0; i < 2 * rows; ++i) {
    const std::string sales = i % 7 == 6 ? "" : fmt::format("{:.3f}", std::sin(i) * 10 + i % 2);
    text += fmt::format("{},2024-{:02}-{:02},{},{}\n", i % 2 ? "east" : "west", 1 + i / 2 / 28,
                        1 + i / 2 % 28, sales, i % 3 == 0 ? 1 : 0);
  }
  folder.write(file, text);
}

constexpr const char* kStores = R"(
data:
  train:
    source: csv
    path: stores.csv
    slice: "[:80]"
    group: store
    features: [sales, promo]
    label: sales
    missing: previous
    sequence_length: 6
    target: sequence
  validation: {source: csv, path: stores.csv, slice: "[80:]"}
  shuffle: false
model:
  layers: [{Input: {shape: [6, 2]}}, Normalization, {LSTM: {units: 4, return_sequences: true}}, {Dense: 1}]
compile: {optimizer: adam, loss: mse, metrics: [mae]}
fit: {batch_size: 8, epochs: 1}
)";

}  // namespace

TEST_CASE("several series in a table, a target for each step, from inspection to prediction") {
  const TemporaryFolder folder;
  write_stores(folder, "stores.csv", 60);
  write_stores(folder, "new.csv", 10);
  folder.write("c.yaml", kStores);
  const std::string shown = ok(folder, {"data", "inspect", "c.yaml"}).out;
  CHECK_MESSAGE(contains(shown, "2 series ([:80], 68 samples)"), shown);
  CHECK(contains(shown, "(68, 6, 2)"));
  CHECK(contains(shown, "(68, 6)"));
  CHECK(contains(shown, "(28, 6)"));  // validation
  ok(folder, {"train", "c.yaml", "-o", "run", "-q"});
  ok(folder, {"evaluate", "run", "-q"});
  ok(folder, {"predict", "run", "-i", "new.csv", "-o", "y.npy", "-q"});
  CHECK(read_npy(folder.file("y.npy")).shape() == Shape{10, 6, 1});
  ok(folder, {"predict", "run", "-i", "new.csv", "-o", "y.csv", "-q"});
  const std::vector<std::string> rows = lines_of(folder.read("y.csv"));
  REQUIRE(rows.size() == 11);
  CHECK_MESSAGE(rows[0].starts_with("store,dense_0_0,"), rows[0]);
  CHECK(rows[1].starts_with("west,"));
  CHECK(rows[2].starts_with("east,"));
  ok(folder, {"predict", "run", "-i", "new.csv", "-o", "y.jsonl", "-q"});
  CHECK(contains(folder.read("y.jsonl"), R"({"store":"west","dense":[)"));
}

TEST_CASE("statistics of windows are those of all their samples") {
  const TemporaryFolder folder;
  HostTensor x(DType::kFloat32, {50, 2}), windows(DType::kFloat32, {19, 5, 2});
  for (int64_t i = 0; i < 100; ++i) {
    x.set(i, 1000 + std::sin(static_cast<double>(i)) * static_cast<double>(i));
  }
  for (int64_t i = 0; i < windows.size(); ++i) {
    const int64_t sample = i / 10, step = i / 2 % 5;
    windows.set(i, x.at((2 * sample + 3 * step) * 2 + i % 2));
  }
  write_npy(folder.file("x.npy"), x);
  write_npy(folder.file("windows.npy"), windows);
  int runs = 0;
  const auto statistics = [&](const std::string& source, const std::string& layer) {
    folder.write("c.yaml", fmt::format(R"(
data: {{train: {{source: npy, {}}}, transform: [{{Rescaling: {{scale: [0.5, 2], offset: [1, 0]}}}}]}}
model:
  layers: [{{Input: {{shape: [5, 2]}}}}, {{{}}}, Flatten, {{Dense: 10}}, {{Reshape: {{target_shape: [5, 2]}}}}]
compile: {{optimizer: sgd, loss: mse}}
fit: {{batch_size: 8, epochs: 1, limit_steps: 1, validation_split: 0.2}}
)",
                                       source, layer));
    const std::string run = fmt::format("run{}", ++runs);
    ok(folder, {"train", "c.yaml", "-o", run, "-q"});
    std::vector<double> out;
    for (const NamedTensor& weight :
         read_safetensors(folder.file(run + "/weights.safetensors")).tensors) {
      const bool is_learned =
          weight.name.starts_with("normalization/") || weight.name.starts_with("discretization/");
      for (int64_t i = 0; is_learned && i < weight.tensor.size(); ++i) {
        out.push_back(weight.tensor.at(i));
      }
    }
    CHECK(!out.empty());
    return out;
  };
  for (const char* layer : {"Normalization: {}", "Normalization: {axis: null}",
                            "Normalization: {axis: [1, 2]}", "Discretization: {num_bins: 4}"}) {
    CAPTURE(layer);
    const std::vector<double> fast = statistics(
        "x: x.npy, y: x, sequence_length: 5, sequence_stride: 2, sampling_rate: 3", layer);
    const std::vector<double> slow = statistics("x: windows.npy, y: x", layer);
    REQUIRE(fast.size() == slow.size());
    for (size_t i = 0; i < fast.size(); ++i) {
      CHECK(fast[i] == doctest::Approx(slow[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("predict takes arrays of rows as windows, and arrays of windows as they are") {
  const TemporaryFolder folder;
  HostTensor rows(DType::kFloat32, {20, 2}), windows(DType::kFloat32, {6, 4, 2});
  for (int64_t i = 0; i < rows.size(); ++i) {
    rows.set(i, std::sin(static_cast<double>(i)));
  }
  for (int64_t i = 0; i < windows.size(); ++i) {
    const int64_t sample = i / 8, step = i / 2 % 4;
    windows.set(i, rows.at((2 * sample + 2 * step) * 2 + i % 2));
  }
  write_npy(folder.file("rows.npy"), rows);
  write_npy(folder.file("windows.npy"), windows);
  folder.write("c.yaml", R"(
data: {train: {source: npy, x: rows.npy, y: x, horizon: 1, sequence_length: 4, sampling_rate: 2, sequence_stride: 2}}
model: {layers: [{Input: {shape: [4, 2]}}, {LSTM: 2}]}
compile: {optimizer: sgd, loss: mse}
fit: {epochs: 1}
)");
  ok(folder, {"train", "c.yaml", "-o", "run", "-q"});
  ok(folder, {"predict", "run", "-i", "rows.npy", "-o", "a.npy", "-q"});
  ok(folder, {"predict", "run", "-i", "windows.npy", "-o", "b.npy", "-q"});
  const HostTensor a = read_npy(folder.file("a.npy")), b = read_npy(folder.file("b.npy"));
  REQUIRE(a.shape() == Shape{7, 2});  // windows reach the last row
  HostTensor many(DType::kFloat32, {9, 4, 2});
  std::fill_n(many.data<float>(), many.size(), 0.5F);
  write_npy(folder.file("many.npy"), many);
  const Result twice = meshtrain(
      {"evaluate", "run", "data.test={source: npy, x: many.npy, y: x}", "-q"}, folder.path());
  CHECK(twice.exit_code == 3);
  CHECK_MESSAGE(contains(twice.err, "write `sequence_length: null` in its source"), twice.err);
  REQUIRE(b.shape() == Shape{6, 2});
  for (int64_t i = 0; i < b.size(); ++i) {
    CHECK(a.at(i) == b.at(i));
  }
}

TEST_CASE("a series of one column, and a draft of rows in the order of time, say what to write") {
  const TemporaryFolder folder;
  std::string one = "T (degC)\n", dated = "day,price\n", mixed = "day,price\n";
  for (int i = 0; i < 20; ++i) {
    one += fmt::format("{}\n", i % 5);
    dated += fmt::format("2024-01-{:02},{}.5\n", i + 1, i % 7);
    mixed += fmt::format("2024-01-{:02},{}.5\n", i * 7 % 20 + 1, i % 7);
  }
  folder.write("one.csv", one);
  folder.write("dated.csv", dated);
  folder.write("mixed.csv", mixed);
  folder.write("c.yaml", R"yaml(
data: {train: {source: csv, path: one.csv, label: "T (degC)", sequence_length: 4
}
}
model: {layers: [{Input: {shape: [4, 1]}}, {LSTM: 1}]}
compile: {loss: mse}
)yaml");
  const Result refused = meshtrain({"train", "c.yaml", "-q"}, folder.path());
  CHECK(refused.exit_code == 3);
  CHECK_MESSAGE(contains(refused.err, "has no column left for features: T (degC)"), refused.err);
  CHECK(contains(refused.err, "`features: [\"T (degC)\"]` makes the label a feature, too"));
  const char* const hint = "# The rows are in the order of `day`.";
  const Result draft = ok(folder, {"init", "--from", "dated.csv"});
  CHECK_MESSAGE(contains(draft.out, hint), draft.out);
  folder.write("draft.yaml", draft.out);
  ok(folder, {"validate", "draft.yaml"});
  CHECK(!contains(ok(folder, {"init", "--from", "mixed.csv"}).out, hint));
  folder.write("german.csv", "tag,a,y\n31.12.2024,1,2\n01.01.2025,2,3\n02.01.2025,3,4\n");
  const Result german = ok(folder, {"init", "--from", "german.csv"});
  CHECK_MESSAGE(contains(german.out,
                         "# `tag` has dates: `date_format: \"%d.%m.%Y\"` and "
                         "`dates: {tag: [year, month, weekday]}`"),
                german.out);
  folder.write("german.yaml", german.out);
  ok(folder, {"validate", "german.yaml"});
}

}  // namespace meshtrain
