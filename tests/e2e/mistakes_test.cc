// Mistakes that train without an error: each gets a warning with its code, here and in the log.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/json.h"
#include "command.h"
#include "data/digits.h"
#include "support/png_file.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

constexpr const char* kNumbers = R"(
name: numbers
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Dense: {units: 1, kernel_initializer: zeros}}]}
compile: {loss: mse, optimizer: {SGD: {learning_rate: 0.1}}}
fit: {epochs: 2}
)";

// `class_of` gives the label of a row.
template <class F>
std::string csv_rows(int count, F&& class_of) {
  std::string text = "a,y\n";
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{},{}\n", i % 3, class_of(i));
  }
  return text;
}

constexpr const char* kClasses = R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [1]}}, {Dense: {units: 3, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {epochs: 1, batch_size: 8}
)";

Result train_with(const TemporaryFolder& folder, const std::string& config,
                  std::vector<std::string> words = {}) {
  folder.write("c.yaml", config);
  words.insert(words.begin(), {"train", "c.yaml", "-o", "run"});
  return meshtrain(std::move(words), folder.path());
}

std::string warnings_in(const Result& result) {
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return result.err;
}

}  // namespace

TEST_CASE("early stopping says so on the terminal, in the record, and at resume") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  const Result result =
      train_with(folder, kNumbers,
                 {"fit.epochs=9", "callbacks=[{EarlyStopping: {monitor: loss, min_delta: 10.0}}]"});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const std::string says =
      "stopped by EarlyStopping after epoch 2 of 9: `loss` has not improved "
      "for 1 epoch; its best is ";
  CHECK_MESSAGE(contains(result.err, says), result.err);
  CHECK(contains(folder.read("run/log.txt"), says));
  CHECK(contains(folder.read("run/report.html"), "stopped by EarlyStopping after epoch 2 of 9"));
  CHECK(contains(folder.read("run/meta.json"), says));
  nlohmann::json stop;
  for (const std::string& line : lines_of(folder.read("run/metrics.jsonl"))) {
    const nlohmann::json event = parse_json(line);
    stop = event.at("event") == "stop" ? event : stop;
  }
  REQUIRE(stop.is_object());
  CHECK(stop.at("by") == "EarlyStopping");
  CHECK(stop.at("epoch") == 2);
  CHECK(stop.at("epochs") == 9);
  CHECK(stop.at("best_epoch") == 1);
  const Result resumed = meshtrain({"resume", "run", "fit.epochs=12"}, folder.path());
  CHECK(resumed.exit_code == 0);
  CHECK_MESSAGE(contains(resumed.err, "stays stopped by EarlyStopping after epoch 2 of 12"),
                resumed.err);
  CHECK(contains(resumed.err, "give it more `patience` than 0"));
  const Result more =
      meshtrain({"resume", "run", "fit.epochs=4", "callbacks.0.patience=9"}, folder.path());
  CHECK_MESSAGE(more.exit_code == 0, more.err);
  CHECK_MESSAGE(!contains(more.err, "stopped by"), more.err);
}

TEST_CASE("a run that trains all its epochs was not stopped early") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  const Result result = train_with(
      folder, kNumbers, {"callbacks=[{EarlyStopping: {monitor: loss, min_delta: 10.0}}]"});
  CHECK(result.exit_code == 0);
  CHECK(!contains(result.err, "stopped by"));
  CHECK(!contains(folder.read("run/metrics.jsonl"), "\"stop\""));
}

TEST_CASE("bad images that are left out are counted and named") {
  TemporaryFolder folder;
  const DigitImages digits = make_digits(20, 1);
  for (int64_t i = 0; i < 20; ++i) {
    test::write_png(folder.file(fmt::format("a/{}/{}.png", i % 2 == 0 ? "x" : "y", i)),
                    digits.images.data<uint8_t>() + i * 784);
  }
  folder.write("a/x/bad.png", "no image");
  folder.write("a/y/cut.png", folder.read("a/y/1.png").substr(0, 60));
  const Result result = train_with(folder, R"(
data:
  train: {source: image_folder, directory: a, color_mode: grayscale, image_size: 28x28, on_bad_record: skip}
  transform: [{Rescaling: {scale: =1/255}}]
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: {units: 2, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {epochs: 1}
)");
  const std::string says = warnings_in(result);
  CHECK_MESSAGE(contains(says, "warning[W322]: 2 bad records of the train data are left out"),
                says);
  CHECK_MESSAGE(contains(says, "x/bad.png"), says);
  CHECK_MESSAGE(contains(says, "y/cut.png"), says);
  for (const char* file : {"run/log.txt", "run/metrics.jsonl", "run/report.html"}) {
    CAPTURE(file);
    CHECK(contains(folder.read(file), "[W322] 2 bad records"));
    CHECK(contains(folder.read(file), "x/bad.png"));
  }
  const Result draft = meshtrain({"init", "--from", "a"}, folder.path());
  REQUIRE_MESSAGE(draft.exit_code == 0, draft.err);
  CHECK_MESSAGE(contains(draft.out, "on_bad_record: skip  # 2 of those"), draft.out);
  const Result predicted = meshtrain({"predict", "run", "-i", "a", "-o", "y.npy"}, folder.path());
  CHECK_MESSAGE(contains(warnings_in(predicted), "warning[W322]: 2 bad records of the input"),
                predicted.err);
}

TEST_CASE("classes that a part lacks, and sorted classes without shuffling") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(120, [](int i) { return i / 40; }));
  const std::string split =
      warnings_in(train_with(folder, kClasses, {"fit.validation_split=0.25"}));
  CHECK_MESSAGE(
      contains(split, "warning[W312]: the validation data have no sample of 2 of 3 classes: 0, 1"),
      split);
  CHECK(contains(split, "`validation_split` takes the last samples"));
  CHECK(contains(folder.read("run/log.txt"), "[W312] the validation data"));
  folder.write("v.csv", csv_rows(30, [](int i) { return i % 3; }));
  folder.write("t.csv", csv_rows(80, [](int i) { return i / 40; }));
  std::filesystem::remove_all(folder.file("run"));
  const std::string untrained = warnings_in(
      train_with(folder, kClasses,
                 {"data.validation={source: csv, path: v.csv}", "fit.class_weight={2: 3.0}"}));
  CHECK_MESSAGE(
      contains(untrained, "the validation data have 1 class that the training data lack: 2"),
      untrained);
  CHECK_MESSAGE(
      contains(untrained, "`class_weight` names class 2, of which the training data have no"),
      untrained);
  std::filesystem::remove_all(folder.file("run"));
  const std::string sorted = warnings_in(train_with(folder, kClasses, {"data.shuffle=false"}));
  CHECK_MESSAGE(contains(sorted, "warning[W319]: "), sorted);
  folder.write("t.csv", csv_rows(120, [](int i) { return i % 3; }));
  std::filesystem::remove_all(folder.file("run"));
  const std::string good = warnings_in(
      train_with(folder, kClasses, {"data.shuffle=false", "fit.validation_split=0.25"}));
  CHECK_MESSAGE(!contains(good, "warning"), good);
}

TEST_CASE("samples that train and are validated or tested, too") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(100, [](int i) { return i % 2; }));
  folder.write("u.csv", csv_rows(10, [](int i) { return i % 2; }));
  folder.write("t.txt", std::string(100, 'a') + std::string(100, 'b'));
  const auto says = [&](const std::string& data, const char* input = "[1]") {
    folder.write("c.yaml", fmt::format("data: {{{}}}\nmodel: {{layers: [{{Input: {{shape: {}}}}}, "
                                       "Flatten, {{Dense: 1}}]}}\ncompile: {{loss: mse}}\n",
                                       data, input));
    return warnings_in(meshtrain({"validate", "c.yaml", "--data"}, folder.path()));
  };
  const std::string train = R"(train: {source: csv, path: t.csv, label: y, slice: "[:80%]"}, )";
  const auto csv = [](const char* slice) {
    return fmt::format(R"({{source: csv, path: t.csv, slice: "{}"}})", slice);
  };
  const std::string some = says(train + "validation: " + csv("[60:]"));
  CHECK_MESSAGE(contains(some,
                         "warning[W331]: 20 of the 40 samples of the validation data are in "
                         "`data.train`, too"),
                some);
  CHECK(contains(some, "note: `train` reads [0:80], `validation` reads [60:100]"));
  CHECK(!contains(says(train + "validation: " + csv("[80%:]")), "W331"));
  CHECK(
      contains(says(train + "validation: {source: csv, path: ./t.csv}"), "80 of the 100 samples"));
  CHECK(!contains(says(train + "validation: {source: csv, path: u.csv}"), "W331"));
  CHECK(contains(says(train + "validation: {source: csv, path: u.csv}, test: " + csv("[:10]")),
                 "10 of the 10 samples of the test data"));
  CHECK(contains(says("train: {source: digits, samples: 50}, validation: {source: digits, split: "
                      "\"train[40:]+test[:5]\", samples: 50}",
                      "[28, 28, 1]"),
                 "`train` reads train[0:50], `validation` reads train[40:50] + test[0:5]"));
  CHECK(!contains(says("train: {source: digits, samples: 50}, validation: {source: digits, split: "
                       "test, samples: 50}",
                       "[28, 28, 1]"),
                  "W331"));
  const std::string text =
      R"({source: text, path: t.txt, sequence_length: 4, target: last, slice: )";
  CHECK(contains(says("train: " + text + "\"[:150]\"}, validation: " + text + "\"[120:]\"}", "[4]"),
                 "30 of the 80 ids of the validation data"));
  const std::string noise = "{source: random, samples: 9, shape: [1], labels: [1]}";
  CHECK(!contains(says("train: " + noise + ", validation: " + noise), "W331"));
}

TEST_CASE("weights of samples that no argument names") {
  TemporaryFolder folder;
  std::vector<NamedTensor> arrays;
  for (const char* name : {"x", "y", "sample_weight"}) {
    const bool is_weight = std::string(name) == "sample_weight";
    arrays.push_back({name, HostTensor(DType::kFloat32, is_weight ? Shape{8} : Shape{8, 1})});
    for (int64_t i = 0; i < 8; ++i) {
      arrays.back().tensor.set(i, static_cast<double>(i));
    }
  }
  write_npz(folder.file("t.npz"), arrays);
  const auto says = [&](const char* more) {
    folder.write("c.yaml", fmt::format(R"(
data: {{train: {{source: npz, path: t.npz{}}}}}
model: {{layers: [{{Input: {{shape: [1]}}}}, {{Dense: 1}}]}}
compile: {{loss: mse}}
)",
                                       more));
    return warnings_in(meshtrain({"validate", "c.yaml", "--data"}, folder.path()));
  };
  CHECK(contains(says(""), "warning[W332]: `t.npz` has an array `sample_weight`, which is not"));
  CHECK(!contains(says(", sample_weight: sample_weight"), "W332"));
  CHECK(!contains(says(", sample_weight: null"), "W332"));
  CHECK(!contains(says(", y: sample_weight"), "W332"));
}

TEST_CASE("values in the hundreds that a layer takes as they are") {
  TemporaryFolder folder;
  std::string text = "a,y\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{},{}\n", 1900 + i, i % 3);
  }
  folder.write("t.csv", text);
  const std::string raw = warnings_in(train_with(folder, kClasses));
  CHECK_MESSAGE(contains(raw, "warning[W329]: `x` has values up to 1939, and `dense` takes them"),
                raw);
  CHECK(contains(raw, "add `- Normalization`"));
  const std::string valid = warnings_in(meshtrain({"validate", "--data", "c.yaml"}, folder.path()));
  CHECK_MESSAGE(contains(valid, "warning[W329]"), valid);
  const std::string wrapped = warnings_in(meshtrain(
      {"validate", "--data", "c.yaml",
       "model.layers=[{Input: {shape: [1]}}, {SpectralNormalization: {layer: {Dense: {units: 3, "
       "activation: softmax}}}}]"},
      folder.path()));
  CHECK_MESSAGE(contains(wrapped, "warning[W329]"), wrapped);
  std::filesystem::remove_all(folder.file("run"));
  const std::string scaled = warnings_in(train_with(
      folder, kClasses,
      {"model.layers=[{Input: {shape: [1]}}, Normalization, {Dense: {units: 3, activation: "
       "softmax}}]"}));
  CHECK_MESSAGE(!contains(scaled, "W329"), scaled);
}

TEST_CASE("ids that a table has not, within a layer around it too") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  for (const char* table : {"Embedding: {input_dim: 2, output_dim: 4}",
                            "SpectralNormalization: {layer: {Embedding: {input_dim: 2, "
                            "output_dim: 4}}}"}) {
    CAPTURE(table);
    const Result result = train_with(folder, kNumbers,
                                     {fmt::format("model.layers=[{{Input: {{shape: [1], dtype: "
                                                  "int32}}}}, {{{}}}, Flatten, {{Dense: 1}}]",
                                                  table)});
    CHECK(result.exit_code == 3);
    CHECK_MESSAGE(contains(result.err, "error[E314]"), result.err);
  }
}

TEST_CASE("labels that are ids are not mixed, whatever the loss and their type") {
  TemporaryFolder folder;
  const auto problems = [&](const char* loss, const char* shape, const char* labels) {
    folder.write("c.yaml", fmt::format(R"(
data:
  train: {{source: random, samples: 64, shape: {}, labels: {}}}
  transform: [MixUp]
model: {{layers: [{{Input: {{shape: {}}}}}, {{Dense: {{units: 5, activation: softmax}}}}]}}
compile: {{loss: {}}}
)",
                                       shape, labels, shape, loss));
    return meshtrain({"validate", "c.yaml"}, folder.path()).err;
  };
  const std::string ctc = problems("{CTC: {}}", "[6, 8]", "[4]");
  CHECK_MESSAGE(contains(ctc, "error[E113]: `MixUp` mixes targets, and `CTC` takes class ids"),
                ctc);
  CHECK(contains(ctc, "sequences of labels have no mean"));
  for (const char* loss : {"SparseCategoricalCrossentropy", "CategoricalGeneralizedCrossEntropy"}) {
    const std::string found = problems(loss, "[8]", "[1]");
    CHECK_MESSAGE(contains(found, "takes class ids"), found);
  }
  CHECK(!contains(problems("CategoricalCrossentropy", "[8]", "[5]"), "E113"));
}

TEST_CASE("a loss that does not change, or grows") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  const std::string flat = warnings_in(train_with(
      folder, kNumbers, {"fit.epochs=4", "compile.optimizer={SGD: {learning_rate: 1.0e-12}}"}));
  CHECK_MESSAGE(contains(flat, "[W501] the loss is "), flat);
  CHECK(contains(folder.read("run/metrics.jsonl"), "[W501] the loss is "));
  std::filesystem::remove_all(folder.file("run"));
  const std::string grows = warnings_in(train_with(
      folder, kNumbers, {"fit.epochs=6", "compile.optimizer={SGD: {learning_rate: 1.3}}"}));
  CHECK_MESSAGE(contains(grows, "[W501] the loss grew from "), grows);
  std::filesystem::remove_all(folder.file("run"));
  CHECK(!contains(warnings_in(train_with(folder, kNumbers, {"fit.epochs=6"})), "warning"));
}

TEST_CASE("a loss scale that skips most steps") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  const std::string says = warnings_in(train_with(
      folder, kNumbers,
      {"dtype_policy=mixed_float16",
       "compile.optimizer={LossScaleOptimizer: {inner_optimizer: sgd, initial_scale: 1.0e30}}"}));
  CHECK_MESSAGE(contains(says, "[W503] 2 of the 2 steps of epoch 1 changed no weight"), says);
  std::filesystem::remove_all(folder.file("run"));
  CHECK(
      !contains(warnings_in(train_with(folder, kNumbers, {"dtype_policy=mixed_float16"})), "W503"));
}

TEST_CASE("a model that sees the ids it is to predict") {
  TemporaryFolder folder;
  folder.write("t.txt", std::string(200, 'a') + "bcd");
  const auto says = [&](const std::string& layer, const char* target = "sequence") {
    folder.write("c.yaml", fmt::format(R"(
data: {{train: {{source: text, path: t.txt, sequence_length: 8, target: {}}}}}
model:
  layers:
    - Input: {{name: ids, shape: [8], dtype: int32}}
    - Embedding: {{name: table, input_dim: 4, output_dim: 4}}
    - {}
    - Dense: 4
compile: {{loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}}}
)",
                                       target, layer));
    return warnings_in(meshtrain({"validate", "c.yaml"}, folder.path()));
  };
  for (const char* layer :
       {"MultiHeadAttention: {num_heads: 2, key_dim: 2}",
        "TransformerEncoder: {intermediate_dim: 4, num_heads: 2}",
        "TransformerDecoder: {intermediate_dim: 4, num_heads: 2, call: {use_causal_mask: false}}",
        "Bidirectional: {layer: {GRU: {units: 2, return_sequences: true}}}",
        "GRU: {units: 2, return_sequences: true, go_backwards: true}",
        "Conv1D: {filters: 4, kernel_size: 3, padding: same}",
        "SpectralNormalization: {layer: {Conv1D: {filters: 4, kernel_size: 3, padding: same}}}"}) {
    CAPTURE(layer);
    CHECK_MESSAGE(contains(says(layer), "warning[W125]"), says(layer));
  }
  for (const char* layer :
       {"MultiHeadAttention: {num_heads: 2, key_dim: 2, call: {use_causal_mask: true}}",
        "TransformerDecoder: {intermediate_dim: 4, num_heads: 2}",
        "GRU: {units: 2, return_sequences: true}", "Conv1D: {filters: 4, kernel_size: 1}",
        "Conv1D: {filters: 4, kernel_size: 3, padding: causal}"}) {
    CAPTURE(layer);
    CHECK_MESSAGE(!contains(says(layer), "warning"), says(layer));
  }
  const std::string last = "Bidirectional: {layer: {GRU: {units: 2}}}";
  CHECK_MESSAGE(!contains(says(last, "last"), "warning"), says(last, "last"));
}

TEST_CASE("class names that are not as many as the classes are not used, and that is said") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 3; }));
  const std::string says =
      warnings_in(train_with(folder, kClasses, {"model.class_names=[no, yes]"}));
  CHECK_MESSAGE(contains(says,
                         "warning[W127]: `model.class_names` has 2 names, the model has 3 "
                         "classes: the names are not used"),
                says);
}

TEST_CASE("softmax over one value is always 1") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  const std::string says = warnings_in(
      train_with(folder, kClasses,
                 {"model.layers=[{Input: {shape: [1]}}, {Dense: {name: d, units: 1, activation: "
                  "softmax}}]",
                  "compile.loss=binary_crossentropy"}));
  CHECK_MESSAGE(contains(says, "warning[W124]: the output `d` is always 1"), says);
}

TEST_CASE(
    "a model that the memory of the host cannot hold is refused before anything is allocated") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  const Result result = train_with(
      folder, kNumbers,
      {"model.layers=[{Input: {shape: [1]}}, {Dense: {name: wide, units: 2000000}}, {Dense: {name: "
       "deep, units: 2000000}}, {Dense: 1}]"});
  CHECK(result.exit_code == 4);
  CHECK_MESSAGE(contains(result.err, "error[E631]: weights ("), result.err);
  CHECK_MESSAGE(contains(result.err, "deep/kernel float32 (2000000, 2000000), layer at "),
                result.err);
  CHECK_MESSAGE(contains(result.err, " parameters fit with this optimizer"), result.err);
  CHECK(!std::filesystem::exists(folder.file("run")));
  const Result step =
      train_with(folder, kNumbers,
                 {"model.layers=[{Input: {shape: [1]}}, {RepeatVector: 2000000000}, "
                  "{Dense: 8}, Flatten, {Reshape: {target_shape: [2000000, 8000]}}, "
                  "GlobalAveragePooling1D, {Dense: 1}]"});
  CHECK(step.exit_code == 4);
  CHECK_MESSAGE(contains(step.err, "error[E631]: a train step with a batch of 32 needs"), step.err);
}

TEST_CASE("messages name the way on") {
  TemporaryFolder folder;
  folder.write("digits.yaml", R"(
data: {train: digits}
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: {units: 10, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
distribution: {device_mesh: {shape: [2, 4], axis_names: [data, model], devices: cpu:8}}
)");
  const auto says = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"validate", "digits.yaml"});
    return meshtrain(std::move(words), folder.path()).err;
  };
  const std::string flat = says(
      {"model.layers=[{Input: {shape: [28, 28, 1]}}, {Dense: {units: 10, activation: softmax}}]"});
  CHECK_MESSAGE(contains(flat, "put `Flatten`, or a global pooling"), flat);
  const std::string batch = says({"model.layers.0.shape=[null, 28, 28, 1]"});
  CHECK_MESSAGE(contains(batch, "the Input's `shape`, which has no batch dimension"), batch);
  const std::string devices = says({"--devices", "64xH100"});
  CHECK_MESSAGE(contains(devices, "write `--devices 8xH100` or `--devices auto`"), devices);
  CHECK_MESSAGE(contains(devices, "or a mesh of 64: `--mesh 16x4`"), devices);
  CHECK(contains(says({"--devices", "gpu:0"}), "`--mesh 1x1`"));
  CHECK(contains(says({"--mesh", "4x2", "--mesh", "8x1"}), "`--mesh` is given more than once"));
  CHECK(contains(says({"callbacks+={EarlyStopping:", "{patience:", "2}}"}),
                 "put it in single quotes: 'callbacks+={EarlyStopping: {patience: 2}}'"));
  CHECK(contains(says({"fit.epochs:", "3"}), "write fit.epochs=3"));
  for (const char* good : {"data.train.slice=[:100]", "data.train.slice=[90%:]"}) {
    const std::string none = says({good});
    CHECK_MESSAGE(!contains(none, "error"), none);
  }
  CHECK(!contains(says({"--mesh", "2 x 4"}), "error"));
  const Result fit = meshtrain({"config", "show", "digits.yaml", "fit"}, folder.path());
  CHECK(fit.out.find("fit:\n") == 0);
  CHECK(contains(fit.out, "  batch_size: 32\n"));
  CHECK(!contains(fit.out, "data:"));
  CHECK(contains(
      meshtrain({"train", "digits.yaml", "fit.initial_epoch=5", "--mesh", "8x1"}, folder.path())
          .err,
      "nothing to train: fit.initial_epoch is 5, fit.epochs is 1"));
}

TEST_CASE("the folder of a run's name stands for its newest run") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(40, [](int i) { return i % 2; }));
  folder.write("c.yaml", kNumbers);
  REQUIRE(meshtrain({"train", "c.yaml", "-q"}, folder.path()).exit_code == 0);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"evaluate", "runs/numbers", "evaluate.on=train"},
                                             {"report", "runs/numbers"},
                                             {"verify", "runs/numbers"},
                                             {"resume", "runs/numbers", "fit.epochs=3"}}) {
    const Result result = meshtrain(words, folder.path());
    CHECK_MESSAGE(result.exit_code == 0, words[0], result.err);
  }
  const Result all = meshtrain({"inspect", "runs"}, folder.path());
  CHECK(all.exit_code == 6);
  CHECK_MESSAGE(
      contains(all.err, "`runs` is no run and no checkpoint\n  = help: runs in it: numbers\n"),
      all.err);
  const Result nowhere = meshtrain({"evaluate", "runs/nothere/latest"}, folder.path());
  CHECK(nowhere.exit_code == 6);
  CHECK_MESSAGE(contains(nowhere.err, "there is no folder `runs/nothere/latest`"), nowhere.err);
  CHECK_MESSAGE(contains(nowhere.err, "numbers"), nowhere.err);
  const Result anew =
      meshtrain({"train", "c.yaml", "--name", "other", "--resume", "-q"}, folder.path());
  CHECK(anew.exit_code == 0);
  const Result loud = meshtrain({"train", "c.yaml", "--name", "third", "--resume"}, folder.path());
  CHECK_MESSAGE(contains(loud.err, "no checkpoint to resume from: a new run"), loud.err);
}

TEST_CASE("a run whose checkpoints were deleted is still a run") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(30, [](int i) { return i % 3; }));
  REQUIRE(train_with(folder, kClasses).exit_code == 0);
  const Result before = meshtrain({"evaluate", "run", "evaluate.on=train", "-q"}, folder.path());
  std::filesystem::remove_all(folder.file("run/checkpoints"));
  const Result after = meshtrain({"evaluate", "run", "evaluate.on=train", "-q"}, folder.path());
  CHECK_MESSAGE(after.exit_code == 0, after.err);
  const auto logs = [](const Result& result) {
    return result.out.substr(result.out.find("loss:"));
  };
  CHECK(logs(after) == logs(before));
  CHECK(meshtrain({"predict", "run", "-i", "t.csv", "-o", "-"}, folder.path()).exit_code == 0);
  CHECK(meshtrain({"export", "run", "-o", "m.keras"}, folder.path()).exit_code == 0);
  CHECK(meshtrain({"report", "run"}, folder.path()).exit_code == 0);
  const Result resumed = meshtrain({"resume", "run"}, folder.path());
  CHECK(resumed.exit_code == 6);
  CHECK_MESSAGE(contains(resumed.err, "there is no checkpoint in"), resumed.err);
}

TEST_CASE("a config extends one of another folder, and stdin has a name of its own") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(30, [](int i) { return i % 3; }));
  folder.write("base.yaml", kClasses);
  std::filesystem::create_directories(folder.file("experiments"));
  folder.write("experiments/one.yaml",
               "extends: ../base.yaml\ndata: {train: {path: ../t.csv}}\nfit: {epochs: 2}\n");
  const Result trained = meshtrain({"train", "experiments/one.yaml", "-q"}, folder.path());
  CHECK_MESSAGE(trained.exit_code == 0, trained.err);
  folder.write("experiments/two.yaml", "extends: ../t.csv\n");
  const Result refused = meshtrain({"validate", "experiments/two.yaml"}, folder.path());
  CHECK(refused.exit_code == 2);
  CHECK_MESSAGE(contains(refused.err, "outside of that folder a config ends in .yaml"),
                refused.err);
  const Command piped{.args = {"train", "-", "-q"}, .folder = folder.path(), .input = kClasses};
  CHECK(run(piped).exit_code == 0);
  CHECK(std::filesystem::exists(folder.file("runs/stdin/latest/weights.safetensors")));
}

TEST_CASE("places of layout rules are those of the user's file after a resume, too") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(30, [](int i) { return i % 3; }));
  const std::string config = std::string(kClasses) +
                             "distribution:\n  device_mesh: {shape: [1, 3], axis_names: [data, "
                             "model]}\n  layout_map:\n    dense/kernel: [null, model]\n";
  REQUIRE(train_with(folder, config).exit_code == 0);
  REQUIRE(meshtrain({"resume", "run", "fit.epochs=2"}, folder.path()).exit_code == 0);
  REQUIRE(meshtrain({"resume", "run", "fit.epochs=3"}, folder.path()).exit_code == 0);
  const std::string plan = folder.read("run/plan.json");
  CHECK_MESSAGE(contains(plan, "\"c.yaml:9\""), plan);
  CHECK(!contains(plan, "config.resolved.yaml"));
  const std::string resolved = folder.read("run/config.resolved.yaml");
  CHECK_MESSAGE(contains(resolved, "# c.yaml:9"), resolved);
  CHECK(contains(resolved, "# command line: fit.epochs=3"));
}

TEST_CASE("a layout with fewer entries than dimensions is noted") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(30, [](int i) { return i % 3; }));
  const std::string config =
      std::string(kClasses) +
      "distribution: {device_mesh: {shape: [1, 1], axis_names: [data, model]}, "
      "layout_map: {dense/kernel: [model], dense/bias: [model]}}\n";
  const std::string warnings = warnings_in(train_with(folder, config));
  CHECK_MESSAGE(contains(warnings,
                         "warning[W206]: layout [model] has 1 of 2 entries: "
                         "`dense/kernel` (1, 3) is laid out as [model, null]"),
                warnings);
  CHECK(!contains(warnings, "`dense/bias`"));
}

TEST_CASE("layouts over the only axis of a mesh, which splits the batch") {
  TemporaryFolder folder;
  const auto says = [&](const char* mesh) {
    folder.write("c.yaml", fmt::format(R"(
distribution: {{layout_map: {{d/kernel: [null, model]}}, device_mesh: {{{}
data: {{train: {{source: random, samples: 8, shape: [2], labels: [4]}}}}
model: {{layers: [{{Input: {{shape: [2]}}}}, {{Dense: {{name: d, units: 4}}}}]}}
compile: {{loss: mse}}
fit: {{batch_size: 4}}
)",
                                       mesh));
    return warnings_in(meshtrain({"validate", "c.yaml"}, folder.path()));
  };
  const std::string shared = says("shape: [4], axis_names: [model]}}");
  CHECK_MESSAGE(contains(shared,
                         "warning[W207]: `model`, the only axis of the mesh, splits the batch: "
                         "weights that are laid out over it are gathered in each step"),
                shared);
  CHECK(contains(shared, "help: tensor parallel: a mesh of `shape: [1, 4], axis_names: [batch, "));
  CHECK(!contains(says("shape: [1, 4], axis_names: [batch, model]}}"), "W207"));
  CHECK(!contains(says("shape: [4], axis_names: [model]}, batch_dim_name: model}"), "W207"));
  CHECK(!contains(says("shape: [1], axis_names: [model]}}"), "W207"));
}

TEST_CASE("-v says of each save which epoch it belongs to, whenever the save ends") {
  TemporaryFolder folder;
  folder.write("t.csv", csv_rows(30, [](int i) { return i % 3; }));
  folder.write("c.yaml", kClasses);
  const Result result = meshtrain({"train", "c.yaml", "-v", "fit.epochs=2"}, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  CHECK_MESSAGE(contains(result.err, "saved step 8, the end of epoch 2 ("), result.err);
  const Result inner = meshtrain({"train", "c.yaml", "-v", "fit.epochs=1",
                                  "checkpoint.every=3 steps", "checkpoint.async=false"},
                                 folder.path());
  CHECK_MESSAGE(contains(inner.err, "saved step 3, in epoch 1 ("), inner.err);
}

TEST_CASE("a missing Flatten is one error, though metrics compare the same shapes") {
  TemporaryFolder folder;
  folder.write("c.yaml", R"(
data: {train: digits}
model: {layers: [{Input: {shape: [28, 28, 1]}}, {Dense: {units: 10, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy, metrics: [accuracy]}
)");
  const Result result = meshtrain({"validate", "c.yaml"}, folder.path());
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(contains(result.err, "put `Flatten`"), result.err);
  CHECK_MESSAGE(contains(result.err + result.out, "1 error"), result.err);
}

}  // namespace meshtrain

TEST_SUITE_END();
