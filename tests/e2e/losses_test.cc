// Losses and metrics as configs combine them: words, expressions, outputs without a loss.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "command.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

// Two outputs over a table of two features and a label; `rest` has `compile` and more.
std::string two_losses(const std::string& label, const std::string& rest) {
  return "model:\n  layers:\n"
         "    - Input: {name: x, shape: [2]}\n"
         "    - Dense: {name: a, units: 3, activation: softmax, inputs: x}\n"
         "    - Dense: {name: b, units: 3, inputs: x}\n"
         "  outputs: [a, b]\n"
         "data: {train: {source: csv, path: t.csv, features: [p, q], label: " +
         label + "}}\nfit: {epochs: 2, batch_size: 8}\n" + rest;
}

// The same over one output.
std::string one_loss(const std::string& rest) {
  return "model: {layers: [{Input: {name: x, shape: [2]}}, {Dense: {name: a, units: 3, "
         "activation: softmax}}]}\n"
         "data: {train: {source: csv, path: t.csv, features: [p, q], label: y}}\nfit: {epochs: 2, "
         "batch_size: 8}\n" +
         rest;
}

void write_table(const TemporaryFolder& folder) {
  std::string text = "p,q,y,z\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{},{},{},{}\n", i % 7 / 10.0, i % 5 / 10.0, i % 3, i % 2);
  }
  folder.write("t.csv", text);
}

Result run_ok(const TemporaryFolder& folder, const std::vector<std::string>& words) {
  const Result result = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.out, result.err);
  return result;
}

// The last line of a quiet training: its logs.
std::string logs_of(const TemporaryFolder& folder, const std::string& yaml,
                    const std::vector<std::string>& words = {}) {
  folder.write("c.yaml", yaml);
  std::filesystem::remove_all(folder.file("run"));
  std::vector<std::string> args = {"train", "c.yaml", "-q", "-o", "run"};
  args.insert(args.end(), words.begin(), words.end());
  const std::string out = lines_of(run_ok(folder, args).out).back();
  const size_t at = out.find("/step - ");
  REQUIRE_MESSAGE(at != std::string::npos, out);
  return out.substr(at);
}

}  // namespace

TEST_CASE("the word crossentropy trains as the class that fits, with class weights, too") {
  const TemporaryFolder folder;
  write_table(folder);
  const std::string rest = "compile: {loss: ce, metrics: [accuracy]}\n";
  for (const auto& [words, loss] :
       {std::pair(std::vector<std::string>{}, "sparse_categorical_crossentropy"),
        std::pair(std::vector<std::string>{"data.label={one_hot: 3}"}, "categorical_crossentropy"),
        std::pair(std::vector<std::string>{"data.train.label=z", "model.layers.a.units=1",
                                           "model.layers.a.activation=sigmoid"},
                  "binary_crossentropy")}) {
    CAPTURE(loss);
    std::vector<std::string> all = words;
    all.emplace_back("fit.class_weight={0: 3, 1: 0.5}");
    std::vector<std::string> named = all;
    named.push_back(std::string("compile.loss=") + loss);
    CHECK(logs_of(folder, one_loss(rest), all) == logs_of(folder, one_loss(rest), named));
    all.insert(all.begin(), {"validate", "--data", "c.yaml"});
    CHECK(contains(run_ok(folder, all).out, "0 errors, 0 warnings"));
  }
}

TEST_CASE("class weights beside an output without a loss") {
  const TemporaryFolder folder;
  write_table(folder);
  const std::string weights = "fit.class_weight={0: 3, 2: 0.5}";
  const std::string rest = "compile: {loss: {a: sparse_categorical_crossentropy}}\n";
  const std::string alone = logs_of(folder, one_loss("compile: {loss: ce}\n"), {weights});
  CHECK(logs_of(folder, two_losses("{a: y}", rest), {weights}) == alone);
  CHECK(logs_of(folder, two_losses("{a: y, b: z}", rest), {weights, "model.layers.b.units=1"}) ==
        alone);
  folder.write("c.yaml", two_losses("{a: y, b: z}", "compile: {loss: {a: ce, b: mse}}\n"));
  const Result two =
      meshtrain({"validate", "c.yaml", weights, "model.layers.b.units=1"}, folder.path());
  CHECK(two.exit_code == 3);
  CHECK_MESSAGE(contains(two.err, "have 2 targets, and more than one output has a loss"), two.err);
}

TEST_CASE("a loss that names outputs alone needs no y_true and no target") {
  const TemporaryFolder folder;
  write_table(folder);
  const auto with_loss = [](const std::string& loss) {
    return two_losses("{a: y}", "compile: {loss: {a: ce, b: " + loss + "}}\n");
  };
  const std::string whole = logs_of(folder, with_loss("\"=mean(square(y_pred - a), axis=-1)\""));
  CHECK(logs_of(folder, with_loss("\"=mean(square(b - a), axis=-1)\"")) == whole);
  CHECK(logs_of(folder, with_loss("{Lambda: \"=mean(square(b - a), axis=-1)\"}")) == whole);
  folder.write("c.yaml", with_loss("\"=mean(square(b - aa), axis=-1)\""));
  const Result wrong = meshtrain({"validate", "c.yaml"}, folder.path());
  CHECK(wrong.exit_code == 2);
  CHECK_MESSAGE(contains(wrong.err, "there is no `aa`"), wrong.err);
  // A name of `vars` is that.
  folder.write("c.yaml", with_loss("=b") + "vars: {b: mse}\n");
  const Result given = meshtrain({"validate", "c.yaml"}, folder.path());
  CHECK_MESSAGE(contains(given.err, "the model has 2 outputs"), given.err);
}

TEST_CASE("an expression over class ids beside metrics that take ids needs no data") {
  const TemporaryFolder folder;
  write_table(folder);
  const std::string ids = "\"=-log(sum(one_hot(cast(y_true, 'int32'), 3) * y_pred, axis=-1))\"";
  for (const std::string metric : {"accuracy", "sparse_categorical_accuracy"}) {
    CAPTURE(metric);
    const std::string logs =
        logs_of(folder, one_loss("compile: {loss: " + ids + ", metrics: [" + metric + "]}\n"));
    CHECK(contains(logs, metric));
    run_ok(folder, {"plan", "c.yaml"});
    run_ok(folder, {"train", "-n", "c.yaml"});
    run_ok(folder, {"suggest", "c.yaml", "--devices", "cpu:2"});
    run_ok(folder, {"predict", "run", "-i", "t.csv", "-o", "-"});
    run_ok(folder, {"export", "run", "-o", "m.json"});
  }
}

TEST_CASE("an expression takes outputs whose number of steps the data tell") {
  const TemporaryFolder folder;
  folder.write("c.yaml",
               "model: {layers: [{Input: {shape: [null, 2]}}, {Masking: {}}, {Dense: 1}]}\n"
               "data: {train: {source: random, samples: 8, shape: [6, 2], labels: [6, 1]}}\n"
               "compile:\n  loss: =mean(square(y_true - y_pred), axis=-1)\n"
               "  metrics: [\"=max(abs(y_true - y_pred))\"]\n");
  run_ok(folder, {"train", "c.yaml", "-q"});
  CHECK(contains(run_ok(folder, {"validate", "c.yaml"}).err,
                 "W630]: metric `lambda` gives no value for each step of `dense`"));
}

TEST_CASE("outputs that are blocks are called after them") {
  const TemporaryFolder folder;
  write_table(folder);
  const std::string yaml =
      "blocks: {tower: {inputs: [h], layers: [{Dense: 4}, {Dense: 1}]}}\n"
      "model:\n  layers:\n    - Input: {name: x, shape: [2]}\n"
      "    - tower: {name: left, inputs: x}\n    - tower: {name: right, inputs: x}\n"
      "  outputs: [left, right]\n"
      "data: {train: {source: csv, path: t.csv, features: [p, q], label: {left: y, right: z}}}\n"
      "compile:\n  loss: {left: mse, right: =square(y_true - right) + 0 * left}\n"
      "  metrics: {right: [mae]}\n  loss_weights: {left: 0.5}\n";
  const std::string logs = logs_of(folder, yaml);
  for (const char* name : {"left_loss", "right_loss", "right_mae"}) {
    CHECK_MESSAGE(contains(logs, name), logs);
  }
}

}  // namespace meshtrain
