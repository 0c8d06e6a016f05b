// evaluate and predict of a run or a checkpoint: its config and its weights, without naming either.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/json.h"
#include "example.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// The logs of an evaluation of `target` in `folder`, and what it says of the weights.
std::pair<nlohmann::json, std::string> evaluation(std::vector<std::string> words,
                                                  const std::string& folder) {
  words.insert(words.begin(), "evaluate");
  words.push_back("--log-format=json");
  const Result result = meshtrain(words, folder);
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return {parse_json(result.out).at("logs"), result.err};
}

TEST_CASE("a run is evaluated with its own config and last weights from any folder") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "run", "checkpoint.every=1 epoch"},
                    folder.path())
              .exit_code == 0);
  const auto by_hand =
      evaluation({"small.yaml", "--weights", "run/weights.safetensors"}, folder.path()).first;
  const auto [of_run, said] = evaluation({"run"}, folder.path());
  CHECK(of_run == by_hand);
  CHECK(contains(said, "weights     " + fs::canonical(folder.file("run")).string() +
                           "/weights.safetensors\n"));
  CHECK(evaluation({folder.file("run"), "--mesh", "1x1", "-q"}, "/tmp").second == "");
  CHECK(evaluation({"run/checkpoints/000006"}, folder.path()).first.contains("loss"));
  CHECK(evaluation({"small.yaml", "-w", "run"}, folder.path()).first == by_hand);
  // A run's name may look like a checkpoint's, and a copy of the weights may lie alone.
  fs::copy(folder.file("run"), folder.file("000017"), fs::copy_options::recursive);
  CHECK(evaluation({"000017"}, folder.path()).first == by_hand);
  fs::create_directories(folder.file("copy"));
  fs::copy(folder.file("run/weights.safetensors"), folder.file("copy/weights.safetensors"));
  CHECK(evaluation({"small.yaml", "-w", "copy"}, folder.path()).first == by_hand);
  // One that has not come to its end has its newest checkpoint.
  fs::remove(folder.file("run/weights.safetensors"));
  const auto [of_checkpoint, from] = evaluation({"run"}, folder.path());
  CHECK(of_checkpoint == by_hand);
  CHECK(contains(from, "/run/checkpoints/"));
  CHECK(evaluation({"small.yaml", "-w", "run/checkpoints/000006"}, folder.path()).second != "");

  HostTensor samples(DType::kFloat32, {5, 6});
  write_npy(folder.file("x.npy"), samples);
  const Result predicted =
      meshtrain({"predict", "run", "-i", "x.npy", "--output", "y.csv"}, folder.path());
  REQUIRE_MESSAGE(predicted.exit_code == 0, predicted.err);
  CHECK(lines_of(folder.read("y.csv")).size() == 6);
  write_npy(folder.file("x.npy"), HostTensor(DType::kFloat32, {5, 7}));
  const Result other =
      meshtrain({"predict", "run", "-i", "x.npy", "--output", "y.csv"}, folder.path());
  CHECK(other.exit_code == 3);
  CHECK(contains(other.err, "--> command line:1:1"));
  CHECK(contains(other.err, "--input x.npy"));
}

TEST_CASE("the training data are evaluated without those that are split off for validation") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {"small.yaml", "evaluate.on=train",
                                          "fit.validation_split=0.5"};
  std::vector<std::string> train = {"train", "-q", "-o", "run", "--log-format=json"};
  train.insert(train.end(), words.begin(), words.end());
  const Result trained = meshtrain(train, folder.path());
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const auto logs = parse_json(lines_of(trained.out).back()).at("logs");
  CHECK(evaluation({"run"}, folder.path()).first == logs);
}

TEST_CASE("evaluation knows no class weights") {
  const ExampleFolder folder;
  const Result trained = meshtrain({"train", "small.yaml", "-q", "-o", "run", "--log-format=json",
                                    "evaluate.on=train", "fit.class_weight={0: 5, 1: 0}"},
                                   folder.path());
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const auto logs = parse_json(lines_of(trained.out).back()).at("logs");
  CHECK(evaluation({"run"}, folder.path()).first == logs);
}

TEST_CASE("a model without weights is evaluated without a file of weights") {
  const ExampleFolder folder;
  const std::vector<std::string> bare = {
      "evaluate", "small.yaml",
      "model.layers=[{Input: {shape: [6]}}, {Rescaling: {name: d2, scale: 2}}]",
      "~distribution.layout_map.d1/kernel"};
  const Result result = meshtrain(bare, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(contains(result.out, "loss"));
}

TEST_CASE("a path with an equals sign is a path") {
  const ExampleFolder folder;
  folder.write("lr=0.1.yaml", kExample);
  for (const char* name : {"lr=0.1.yaml", "./lr=0.1.yaml"}) {
    const Result result = meshtrain({"validate", name}, folder.path());
    CHECK(result.exit_code == 0);
    CHECK(result.out == std::string(name) + ": 0 errors, 0 warnings\n");
  }
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "lr=0.1"}, folder.path()).exit_code == 0);
  for (const char* name : {"lr=0.1", "./lr=0.1"}) {
    CHECK(evaluation({name}, folder.path()).first.contains("loss"));
  }
  CHECK(contains(meshtrain({"plan", "./lr=0.1"}, folder.path()).err,
                 "its config: ./lr=0.1/config.resolved.yaml\n"));
  // A key is one although a folder is called so, and a layout rule has slashes.
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "seed=5"}, folder.path()).exit_code == 0);
  for (const char* word :
       {"seed=5", "distribution.layout_map.d1/kernel=[null,null]",
        "distribution.layout_map['d1/kernel']=[null,null]", "callbacks+=TerminateOnNaN"}) {
    const Result result = meshtrain({"plan", "small.yaml", word}, folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.err);
  }
  CHECK(contains(meshtrain({"plan", "small.yaml", "sed=5"}, folder.path()).err, "error[E111]"));
  const Result misspelt = meshtrain(
      {"plan", "small.yaml", "distribution.layout_maps.d1/kernel=[null,null]"}, folder.path());
  CHECK_MESSAGE(contains(misspelt.err, "error[E111]"), misspelt.err);
  fs::create_directories(folder.file("data.v2"));
  folder.write("data.v2/lr=1.yaml", kExample);
  CHECK(meshtrain({"validate", "data.v2/lr=1.yaml"}, folder.path()).exit_code == 0);
  CHECK(contains(meshtrain({"plan", "configs/lr=1.yaml"}, folder.path()).err, "error[E100]"));
}

TEST_CASE("predictions do not take the place of their samples") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "run"}, folder.path()).exit_code == 0);
  write_npy(folder.file("x.npy"), HostTensor(DType::kFloat32, {5, 6}));
  const std::string samples = folder.read("x.npy");
  const Result same = meshtrain({"predict", "run", "-i", "x.npy", "-o", "./x.npy"}, folder.path());
  CHECK(same.exit_code == 2);
  CHECK(contains(same.err, "error[E140]: `--output ./x.npy` would replace the samples of --input"));
  const Result matched =
      meshtrain({"predict", "run", "-i", "x*.npy", "-o", "x.npy"}, folder.path());
  CHECK(contains(matched.err, "would replace the samples of --input"));
  CHECK(folder.read("x.npy") == samples);
  const Result none = meshtrain({"predict", "run", "-i", "", "-o", "y.npy"}, folder.path());
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "error[E140]: `--input` has no value"));
}

TEST_CASE("what is no run and runs without weights are said so") {
  const ExampleFolder folder;
  fs::create_directories(folder.file("empty"));
  const Result no_run = meshtrain({"evaluate", "empty"}, folder.path());
  CHECK(no_run.exit_code == 6);
  CHECK(contains(no_run.err, "error[E400]: `empty` is no run and no checkpoint"));
  const Result no_weights = meshtrain({"evaluate", "small.yaml", "-w", "empty"}, folder.path());
  CHECK(no_weights.exit_code == 6);
  CHECK(contains(no_weights.err, "error[E400]: `empty` holds no weights"));
  REQUIRE(
      meshtrain({"train", "small.yaml", "-q", "-o", "run", "checkpoint.every=never"}, folder.path())
          .exit_code == 0);
  const Result two = meshtrain({"evaluate", "run", "small.yaml"}, folder.path());
  CHECK(two.exit_code == 2);
  CHECK(contains(two.err, "`run` has its own config"));
  const Result unknown =
      meshtrain({"predict", "run", "-i", "x.npy", "--output", "y.txt"}, folder.path());
  CHECK(unknown.exit_code == 2);
  CHECK(contains(unknown.err, "`--output y.txt` has no known file extension"));
  const Result nowhere =
      meshtrain({"predict", "run", "-i", "x.npy", "--output", "none/y.npy"}, folder.path());
  CHECK(nowhere.exit_code == 74);
  CHECK(contains(nowhere.err, "error[E142]: `--output none/y.npy`: there is no folder `none`"));
}

}  // namespace
}  // namespace meshtrain
