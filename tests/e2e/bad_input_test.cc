// What users get wrong around a config, seen from outside: code, message, exit code.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "example.h"

namespace meshtrain {
namespace {

void check_refused(const Result& result, int exit_code, const std::string& says) {
  CHECK(result.exit_code == exit_code);
  CHECK_MESSAGE(result.err.find(says) != std::string::npos, result.err);
}

TEST_CASE("a mesh that the devices do not make is E210 with exit code 4") {
  const ExampleFolder folder;
  check_refused(
      meshtrain({"validate", "small.yaml", "--mesh", "2x4", "--devices", "cpu:6"}, folder.path()),
      4, "error[E210]: the mesh (2, 4) needs 8 devices, `cpu:6` has 6");
  check_refused(meshtrain({"train", "small.yaml", "--mesh", "1000x1000"}, folder.path()), 4,
                "error[E210]: the mesh (1000, 1000) needs 1000000 devices; 65536 at most");
}

TEST_CASE("a batch that the mesh does not divide is E211 with sizes that fit") {
  const ExampleFolder folder;
  const Result result = meshtrain({"train", "small.yaml", "fit.batch_size=5"}, folder.path());
  check_refused(result, 2, "error[E211]: a batch of 5 does not split over `data` = 2");
  CHECK(result.err.find("write `batch_size: 4` or `batch_size: 6`") != std::string::npos);
}

TEST_CASE("evaluate and predict check the batch that they use") {
  const ExampleFolder folder;
  const std::vector<std::string> train = {"train", "small.yaml", "fit.epochs=1", "-o", "run"};
  REQUIRE(meshtrain(train, folder.path()).exit_code == 0);
  const std::vector<std::string> odd = {"evaluate", "run", "fit.batch_size=5"};
  check_refused(meshtrain(odd, folder.path()), 2,
                "error[E211]: a batch of 5 does not split over `data` = 2");
  std::vector<std::string> own = odd;
  own.push_back("evaluate.batch_size=4");
  const Result result = meshtrain(own, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
}

TEST_CASE("an error elsewhere brings no batch into play") {
  const ExampleFolder folder;
  const Result result =
      meshtrain({"validate", "small.yaml", "--mesh", "3x1", "fit.batch_size=6", "fit.epochs=many"},
                folder.path());
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(result.err.find("E211") == std::string::npos, result.err);
}

TEST_CASE("a config that is no regular file is E100 at once") {
  const ExampleFolder folder;
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  check_refused(meshtrain({"train", "pipe"}, folder.path()), 2,
                "error[E100]: `pipe` is a pipe, not a regular file");
  check_refused(meshtrain({"train", "."}, folder.path()), 2,
                "error[E100]: `.` is a directory, not a regular file");
}

TEST_CASE("arguments without end are E140") {
  const ExampleFolder folder;
  check_refused(
      meshtrain({"validate", "small.yaml", "name=" + std::string(100000, 'x')}, folder.path()), 2,
      "error[E140]: an argument has 98 KiB; at most 64 KiB are possible");
  std::vector<std::string> many = {"validate", "small.yaml"};
  for (int i = 0; i < 1500; ++i) {
    many.push_back("vars.a" + std::to_string(i) + "=1");
  }
  check_refused(meshtrain(many, folder.path()), 2,
                "error[E140]: 1500 overrides; at most 1000 are possible");
}

TEST_CASE("control characters of names and paths are escaped in messages") {
  const ExampleFolder folder;
  const Result file = meshtrain({"train", "no\x1b[31mfile.yaml"}, folder.path());
  CHECK(file.err.find("cannot open `no\\x1b[31mfile.yaml`") != std::string::npos);
  const Result value = meshtrain(
      {"train", "small.yaml", "data.train={source: npy, x: \"n\x1b[31m.npy\"}"}, folder.path());
  CHECK(value.exit_code != 0);
  CHECK(file.err.find('\x1b') == std::string::npos);
  CHECK_MESSAGE(value.err.find('\x1b') == std::string::npos, value.err);
}

TEST_CASE("the link to the newest run is no part of a name") {
  const ExampleFolder folder;
  const Result result = meshtrain({"train", "small.yaml", "--name", "a/latest"}, folder.path());
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("error[E113]: `name` cannot be `a/latest`") == 0);
}

TEST_CASE("names that no file of weights could have are E113, and names that are no texts E112") {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& layers, const char* says) {
    folder.write("c.yaml",
                 layers +
                     "compile: {loss: mse, metrics: [{MeanAbsoluteError: {name: m}}]}\n"
                     "data: {train: {source: random, samples: 8, shape: [3], labels: [1]}}\n");
    const Result result = meshtrain({"validate", "c.yaml"}, folder.path());
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(result.err.find(says) != std::string::npos, result.err);
  };
  const auto dense = [](const std::string& name) {
    return "model: {layers: [{Input: {shape: [3]}}, {Dense: {units: 1, name: " + name + "}}]}\n";
  };
  check(dense("\"price\\tEUR\""), "the name `price?EUR` has control characters");
  check(dense(std::string(500, 'n')), "has 500 bytes; 128 are allowed");
  const std::string block =
      "blocks: {B: {layers: [{Dense: {units: 1, name: {a: 1}}}]}}\n"
      "model: {layers: [{Input: {shape: [3]}}, B]}\n";
  check(block, "`name` of `Dense` must be a text");
  check(
      "blocks: {B: {layers: [{ReLU: {inputs: {a: [b], c: [d, e]}}}]}}\n"
      "model: {layers: [{Input: {shape: [3]}}, B]}\n",
      "`c` takes the name of one input");
}

TEST_CASE("a locale with decimal commas changes nothing") {
  const ExampleFolder folder;
  std::string first;
  for (const char* locale : {"LC_ALL=C", "LC_ALL=tr_TR.UTF-8", "LC_ALL=de_DE.UTF-8"}) {
    Command command;
    command.args = {"train", "small.yaml", "-o", locale + 7, "-q"};
    command.folder = folder.path();
    command.environment = {locale};
    REQUIRE(run(command).exit_code == 0);
    const std::string weights = folder.read(std::string(locale + 7) + "/weights.safetensors");
    first = first.empty() ? weights : first;
    CHECK(weights == first);
  }
}

}  // namespace
}  // namespace meshtrain
