// Resuming a run whose config has changed since: what wins, what is refused, what is taken in
// part.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/json.h"
#include "example.h"
#include "outcome.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_CASE("resume takes the config of the run and shows what changes") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "whole", "fit.epochs=4", "-q"}, folder.path())
              .exit_code == 0);
  fs::remove(folder.file("small.yaml"));
  const Result result = meshtrain({"resume", "run", "fit.epochs=4"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("changed since\n  fit.epochs  2 -> 4\n") != std::string::npos);
  CHECK(result.out.find("Epoch 3/4\n") == 0);
  CHECK(outcome_of(folder.file("run")) == outcome_of(folder.file("whole")));
  const Result moved =
      meshtrain({"resume", "run/checkpoints/000012", "fit.epochs=5", "--mesh", "4x1", "-o", "new"},
                folder.path());
  CHECK_MESSAGE(moved.exit_code == 0, moved.err);
  CHECK(moved.err.find("re-laid from 2 x 2 to 4 x 1") != std::string::npos);
  CHECK(fs::exists(folder.file("new/checkpoints/000015")));
  const Result refused =
      meshtrain({"resume", "run", "fit.epochs=9", "model.layers.d1.units=4"}, folder.path());
  CHECK(refused.exit_code == 6);
  CHECK(refused.err.find("error[E410]") == 0);
  CHECK(refused.err.find("other: d1/kernel is float32 (6, 8) in the checkpoint") !=
        std::string::npos);
}

// The learning rate that the last epochs logged.
std::vector<double> learning_rates(const ExampleFolder& folder, const std::string& run,
                                   size_t epochs) {
  std::vector<double> out;
  for (const std::string& line : lines_of(folder.read(run + "/metrics.jsonl"))) {
    const Json event = parse_json(line);
    if (event.at("event") == "epoch") {
      out.push_back(event.at("logs").at("learning_rate").get<double>());
    }
  }
  REQUIRE(out.size() >= epochs);
  return {out.end() - static_cast<std::ptrdiff_t>(epochs), out.end()};
}

TEST_CASE("a run's config names the weights that it began with, and takes a first layout map") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "first", "-q"}, folder.path()).exit_code == 0);
  const Result run =
      meshtrain({"train", "small.yaml", "-o", "run", "-q", "~distribution.type",
                 "~distribution.layout_map", "fit.initial_weights=first/weights.safetensors"},
                folder.path());
  REQUIRE_MESSAGE(run.exit_code == 0, run.err);
  CHECK(
      contains(folder.read("run/config.resolved.yaml"), folder.file("first/weights.safetensors")));
  const Result laid = meshtrain(
      {"resume", "run", "fit.epochs=3", "distribution.layout_map={d1/kernel: [null, model]}"},
      folder.path());
  CHECK_MESSAGE(laid.exit_code == 0, laid.err);
  CHECK_FALSE(contains(laid.err, "W205"));
}

TEST_CASE("a learning rate that changed since goes before the one that a callback set") {
  const ExampleFolder folder;
  const Result first =
      meshtrain({"train", "small.yaml", "-o", "run", "-q", "fit.epochs=3",
                 "callbacks=[{ReduceLROnPlateau: {monitor: loss, patience: 1, min_delta: 5}}]"},
                folder.path());
  REQUIRE_MESSAGE(first.exit_code == 0, first.err);
  const auto resumed = [&](const std::string& run, std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"resume", "run/checkpoints/000009", "-o", run, "fit.epochs=5",
                                     "callbacks.0.ReduceLROnPlateau.patience=100"});
    const Result result = meshtrain(changes, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return result.err;
  };
  // Reduced after the second and the third epoch.
  resumed("same", {});
  for (const double rate : learning_rates(folder, "same", 2)) {
    CHECK(rate == doctest::Approx(0.001));
  }
  const std::string report = resumed("number", {"compile.optimizer.SGD.learning_rate=0.5"});
  CHECK(report.find("compile.optimizer.SGD.learning_rate") != std::string::npos);
  CHECK(report.find("0.1 -> 0.5") != std::string::npos);
  CHECK(learning_rates(folder, "number", 2) == std::vector<double>{0.5, 0.5});
  // With a schedule such a callback cannot be; here it is always at that number.
  resumed("schedule", {"callbacks=[]",
                       "compile.optimizer.SGD.learning_rate={PiecewiseConstantDecay: {boundaries: "
                       "[100], values: [0.5, 0.1]}}"});
  const std::string weights = "/weights.safetensors";
  CHECK(folder.read("schedule" + weights) == folder.read("number" + weights));
  CHECK(folder.read("schedule" + weights) != folder.read("same" + weights));
  // The resumed run continues: there the rate is no change any more.
  const Result again = meshtrain({"resume", "number", "fit.epochs=6"}, folder.path());
  REQUIRE_MESSAGE(again.exit_code == 0, again.err);
  CHECK(learning_rates(folder, "number", 1) == std::vector<double>{0.5});
}

TEST_CASE("data that an extended file or the command line names are found from any folder") {
  const ExampleFolder folder;
  fs::create_directories(folder.file("base/data"));
  fs::create_directories(folder.file("child"));
  fs::create_directories(folder.file("away"));
  const auto npy = [](std::string header, size_t num_bytes) {
    header.resize(117, ' ');
    return std::string("\x93NUMPY\x01\0v\0", 10) + header + "\n" + std::string(num_bytes, '\0');
  };
  folder.write("base/data/x.npy",
               npy("{'descr': '<f4', 'fortran_order': False, 'shape': (40, 6), }", 40 * 6 * 4));
  folder.write("base/data/y.npy",
               npy("{'descr': '<i4', 'fortran_order': False, 'shape': (40,), }", 40 * 4));
  folder.write("base/base.yaml", kExample);
  folder.write("base/data.yaml",
               "extends: base.yaml\n"
               "data: {train: {source: npy, x: [data/x.npy], y: data/y.npy}}\n");
  folder.write("c.yaml", "extends: base/data.yaml\nname: child\n");
  folder.write("child/c.yaml", "name: child\n");
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{"c.yaml"}, {"child/c.yaml", "base/data.yaml"}}) {
    std::vector<std::string> train = {"train", "-o", files[0] + ".run", "-q"};
    train.insert(train.end(), files.begin(), files.end());
    const Result first = meshtrain(train, folder.path());
    REQUIRE_MESSAGE(first.exit_code == 0, first.err);
    const Result result =
        meshtrain({"resume", folder.file(files[0] + ".run"), "fit.epochs=3"}, folder.file("away"));
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(result.err.find("changed since\n  fit.epochs  2 -> 3\n") != std::string::npos);
  }
  // On the command line paths begin where the command is given.
  const Result word =
      meshtrain({"train", "base/base.yaml", "-o", "word", "-q",
                 "data.train={source: npy, x: base/data/x.npy, y: base/data/y.npy}"},
                folder.path());
  REQUIRE_MESSAGE(word.exit_code == 0, word.err);
  CHECK(meshtrain({"resume", "../word", "fit.epochs=3"}, folder.file("away")).exit_code == 0);
}

TEST_CASE("a run that is moved with its data finds them there") {
  const ExampleFolder folder;
  fs::create_directories(folder.file("here"));
  folder.write("here/t.csv", "a,b,y\n1,2,0\n3,4,1\n5,6,2\n");
  folder.write("here/t.yaml", R"(
data: {train: {source: csv, path: t.csv, label: y}, test: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [2]}}, {Dense: {units: 3, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
)");
  const std::string here = folder.file("here"), there = folder.file("there");
  REQUIRE(meshtrain({"train", "t.yaml", "-q", "-o", "runs/a"}, here).exit_code == 0);
  fs::rename(here, there);
  CHECK(meshtrain({"evaluate", "runs/a", "-q"}, there).exit_code == 0);
  const Result result = meshtrain({"resume", "runs/a", "fit.epochs=2"}, there);
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK_MESSAGE(result.err.find("data.dir    " + here + "/ -> " + there + "/") != std::string::npos,
                result.err);
  fs::rename(there, here + "2");  // the first checkpoint's place is two moves ago
  const Result first = meshtrain(
      {"resume", "runs/a/checkpoints/000001", "fit.epochs=3", "-o", "b", "-q"}, here + "2");
  CHECK_MESSAGE(first.exit_code == 0, first.err);
}

// One weight's bytes in weights.safetensors.
std::string weight_bytes(const ExampleFolder& folder, const std::string& run, const char* path) {
  const std::string bytes = folder.read(run + "/weights.safetensors");
  const auto header = static_cast<size_t>(static_cast<unsigned char>(bytes[0])) +
                      (static_cast<size_t>(static_cast<unsigned char>(bytes[1])) << 8);
  const Json about = parse_json(bytes.substr(8, header)).at(path).at("data_offsets");
  return bytes.substr(8 + header + about[0].get<size_t>(),
                      about[1].get<size_t>() - about[0].get<size_t>());
}

TEST_CASE("weights of another model are taken as far as they fit when that is said") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const std::vector<std::string> other = {"train",
                                          "small.yaml",
                                          "-o",
                                          "other",
                                          "fit.initial_weights=run/weights.safetensors",
                                          "model.layers.d2.units=4",
                                          "compile.optimizer.SGD.learning_rate=1e-30"};
  const Result refused = meshtrain(other, folder.path());
  CHECK(refused.exit_code == 6);
  CHECK(refused.err.find("error[E410]") == 0);
  CHECK(refused.err.find(
            "`train --partial`, or `fit: {partial_weights: true}`, takes those that fit") !=
        std::string::npos);
  std::vector<std::string> partial = other;
  partial.push_back("--partial");
  const Result taken = meshtrain(partial, folder.path());
  CHECK_MESSAGE(taken.exit_code == 0, taken.err);
  CHECK(taken.err.find("warning: run/weights.safetensors: other shape: d2/kernel is (8, 3) in the "
                       "file, (8, 4) in the model") != std::string::npos);
  CHECK(weight_bytes(folder, "run", "d1/kernel") == weight_bytes(folder, "other", "d1/kernel"));
  // The same as a key, which `validate` and sweeps take, too.
  std::vector<std::string> by_key = other;
  by_key[3] = "keyed";
  by_key.emplace_back("fit.partial_weights=true");
  CHECK(meshtrain(by_key, folder.path()).exit_code == 0);
  CHECK(weight_bytes(folder, "keyed", "d2/kernel") == weight_bytes(folder, "other", "d2/kernel"));
  for (const char* last : {"fit.partial_weights=false", "fit.partial_weights=true"}) {
    CHECK(meshtrain({"validate", "small.yaml", "fit.initial_weights=run/weights.safetensors",
                     "model.layers.d2.units=4", last},
                    folder.path())
              .exit_code == (last == std::string("fit.partial_weights=true") ? 0 : 6));
  }
  partial[4] = "fit.initial_weights=nothing.safetensors";
  partial[3] = "third";
  CHECK(meshtrain(partial, folder.path()).exit_code == 6);
}

TEST_CASE("commands that do not train take a file with more weights when that is said") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q",
                     "model.layers.dropout={Dense: {name: more, units: 8}}"},
                    folder.path())
              .exit_code == 0);
  const std::string file = "run/weights.safetensors";
  for (std::vector<std::string> words :
       {std::vector<std::string>{"evaluate", "small.yaml", "-w", file},
        std::vector<std::string>{"export", "small.yaml", "-w", file, "-o", "m.keras"}}) {
    const Result refused = meshtrain(words, folder.path());
    CHECK(refused.exit_code == 6);
    CHECK_MESSAGE(contains(refused.err, "`fit.partial_weights=true` leaves out"), refused.err);
    words.emplace_back("fit.partial_weights=true");
    const Result taken = meshtrain(words, folder.path());
    CHECK_MESSAGE(taken.exit_code == 0, taken.err);
    CHECK_MESSAGE(contains(taken.err,
                           "note: left out of `run/weights.safetensors`: unexpected: more/kernel "
                           "(8, 8); unexpected: more/bias (8,)\n"),
                  taken.err);
    words.emplace_back("model.layers.dropout={Dense: {name: other, units: 8}}");  // not in the file
    CHECK(meshtrain(words, folder.path()).exit_code == 6);
  }
}

TEST_CASE("a checkpoint of another model is taken as far as it fits when that is said") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  std::vector<std::string> other = {"resume",
                                    "run/checkpoints/000006",
                                    "-o",
                                    "other",
                                    "fit.epochs=3",
                                    "model.layers.d2.units=4",
                                    "compile.optimizer.SGD.learning_rate=1e-30"};
  const auto with = [&](const char* flag) {
    other.push_back(flag);
    return meshtrain(other, folder.path());
  };
  const Result refused = meshtrain(other, folder.path());
  CHECK(refused.exit_code == 6);
  CHECK(refused.err.find("error[E410]") == 0);
  CHECK(refused.err.find("--partial takes the weights that fit") != std::string::npos);
  const Result taken = with("--partial");
  CHECK_MESSAGE(taken.exit_code == 0, taken.err);
  CHECK(taken.err.find("warning: run/checkpoints/000006: other: d2/kernel is float32 (8, 3) in the "
                       "checkpoint, float32 (8, 4) in the model") != std::string::npos);
  CHECK(weight_bytes(folder, "run", "d1/kernel") == weight_bytes(folder, "other", "d1/kernel"));
  CHECK(weight_bytes(folder, "other", "d2/kernel").size() == 8 * 4 * sizeof(float));
  // Of a model that has nothing of it there is nothing to take.
  other = {"resume",
           "run/checkpoints/000006",
           "-o",
           "third",
           "model={layers: [{Input: {shape: [6]}}, {Dense: {name: e, units: 3}}]}",
           "distribution.layout_map={}",
           "--partial"};
  CHECK(meshtrain(other, folder.path()).err.find("error[E410]") == 0);
  const Result nothing = meshtrain({"train", "small.yaml", "--partial"}, folder.path());
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.err.find("error[E140]: --partial has nothing to take weights from") == 0);
}

TEST_CASE("what callbacks know of another model is not taken with its weights") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q",
                     "callbacks=[{EarlyStopping: {monitor: loss, patience: 9, "
                     "restore_best_weights: true}}]"},
                    folder.path())
              .exit_code == 0);
  const Result taken = meshtrain({"resume", "run/checkpoints/000006", "-o", "other", "fit.epochs=3",
                                  "-q", "--partial", "model.layers.d2.units=4"},
                                 folder.path());
  REQUIRE_MESSAGE(taken.exit_code == 0, taken.err);
  const std::string kernel = weight_bytes(folder, "other", "d2/kernel");
  CHECK(kernel.find_first_not_of('\0') != std::string::npos);
}

TEST_CASE("averages that a callback left in the weights' place are put back without it") {
  const ExampleFolder folder;
  const std::string adam = "compile.optimizer={Adam: {use_ema: true, ema_momentum: 0.9}}";
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "plain", "-q", adam}, folder.path()).exit_code ==
          0);
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q", adam,
                     "callbacks=[{SwapEMAWeights: {swap_on_epoch: true}}]"},
                    folder.path())
              .exit_code == 0);
  for (const char* run : {"plain", "run"}) {
    const Result result =
        meshtrain({"resume", run, "fit.epochs=4", "callbacks=[]", "-q"}, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  }
  CHECK(outcome_of(folder.file("run")) == outcome_of(folder.file("plain")));
}

TEST_CASE("slots of another model are not taken with its weights") {
  const ExampleFolder folder;
  const std::string adam = "compile.optimizer={Adam: {learning_rate: 0.01}}";
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q", adam}, folder.path()).exit_code ==
          0);
  std::vector<std::string> other = {"resume",    "run/checkpoints/000006", "-o",
                                    "other",     "fit.epochs=3",           "-q",
                                    "--partial", "model.layers.d2.units=4"};
  const Result refused = meshtrain(other, folder.path());
  CHECK(refused.err.find("error[E412]: the optimizer keeps other state") == 0);
  CHECK(refused.err.find("--reset-optimizer takes the weights alone") != std::string::npos);
  other.push_back("--reset-optimizer");
  const Result taken = meshtrain(other, folder.path());
  CHECK_MESSAGE(taken.exit_code == 0, taken.err);
}

TEST_CASE("a run of a mesh without written names goes to a mesh of other axes") {
  const ExampleFolder folder;
  folder.write("plain.yaml", R"(
data: {train: {source: random, samples: 16, shape: [6], labels: [2]}}
model: {layers: [Input: {shape: [6]}, Dense: {name: d, units: 2}]}
compile: {loss: mse}
fit: {batch_size: 8, epochs: 1}
evaluate: {"on": train, batch_size: 8}
)");
  REQUIRE(meshtrain({"train", "plain.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const auto succeeds = [&](const std::vector<std::string>& words) {
    const Result result = meshtrain(words, folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.err);
  };
  succeeds({"resume", "run", "fit.epochs=2", "--mesh", "2x2", "-q"});
  succeeds(
      {"resume", "run", "fit.epochs=3", "--mesh", "4", "-q"});  // names of 2x2 are defaults too
  succeeds({"evaluate", "run", "--mesh", "2x2", "-q"});
  succeeds({"evaluate", "run/checkpoints/000002", "--mesh", "2x2", "-q"});
  const Result unnamed = meshtrain({"resume", "run", "--mesh", "1x2x2"}, folder.path());
  CHECK(unnamed.err.find("error[E112]: a mesh of 3 axes needs `axis_names`") == 0);
  CHECK(unnamed.err.find("name the axes: --mesh data=1,fsdp=2,model=2") != std::string::npos);
  REQUIRE(meshtrain({"train", "plain.yaml", "-o", "named", "-q", "--mesh", "dp=2"}, folder.path())
              .exit_code == 0);
  const Result named = meshtrain({"resume", "named", "--mesh", "2x2"}, folder.path());
  CHECK(named.err.find("error[E113]: `axis_names` has 1 name for a mesh of 2 axes") == 0);
  CHECK(named.err.find("name the axes: --mesh dp=2,data=2, or "
                       "distribution.device_mesh.axis_names=[dp,data]") != std::string::npos);
}

TEST_CASE("a run resumes from a checkpoint of format 1 on another mesh") {
  const TemporaryFolder folder;
  const Result result = meshtrain({"resume", MESHTRAIN_SOURCE_DIR "/tests/golden/checkpoint/000012",
                                   "-o", "new", "--mesh", "4x1"},
                                  folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("re-laid from 2 x 2 to 4 x 1") != std::string::npos);
  CHECK(result.err.find("changed since\n  distribution.device_mesh.shape  [2, 2] -> [4, 1]\n") !=
        std::string::npos);
  CHECK(fs::exists(folder.file("new/checkpoints/000015/manifest.json")));
}

}  // namespace
}  // namespace meshtrain
