// Predictions as texts and arrays.
#include "record/predictions.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/diagnostic.h"
#include "support/temp_folder.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

HostTensor tensor(DType dtype, Shape shape, const std::vector<double>& values) {
  HostTensor out(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    out.set(static_cast<int64_t>(i), values[i]);
  }
  return out;
}

std::vector<NamedTensor> two_outputs() {
  std::vector<NamedTensor> outputs;
  outputs.push_back({"scores", tensor(DType::kFloat32, {2, 2, 1}, {0.1, -2, 1e-30, std::nan("")})});
  outputs.push_back(
      {"a,b", tensor(DType::kFloat64, {2, 1}, {0.1, std::numeric_limits<double>::infinity()})});
  return outputs;
}

void write(const std::string& path, std::vector<NamedTensor> outputs) {
  const PredictionFormat format = prediction_format(path, "", outputs.size());
  Predictions predictions;
  predictions.outputs = std::move(outputs);
  write_predictions(path, predictions, format);
}

std::string written(const std::string& extension) {
  const test::TempFolder folder;
  write(folder.file("y" + extension), two_outputs());
  return folder.read("y" + extension);
}

TEST_CASE("csv has a column for each element of a sample") {
  CHECK(written(".csv") ==
        "scores_0_0,scores_1_0,\"a,b\"\n"
        "0.1,-2,0.1\n"
        "1e-30,nan,inf\n");
}

TEST_CASE("jsonl has an object for each sample and null for what JSON has no number for") {
  CHECK(written(".jsonl") ==
        "{\"scores\":[[0.1],[-2]],\"a,b\":[0.1]}\n"
        "{\"scores\":[[1e-30],[null]],\"a,b\":[null]}\n");
}

TEST_CASE("whole numbers keep every digit") {
  std::vector<NamedTensor> outputs;
  outputs.push_back({"n", tensor(DType::kInt32, {2}, {16777217, -3})});
  const test::TempFolder folder;
  write(folder.file("n.csv"), std::move(outputs));
  CHECK(folder.read("n.csv") == "n\n16777217\n-3\n");
}

TEST_CASE("npz has an array for each output") {
  const test::TempFolder folder;
  const std::string path = folder.file("y.npz");
  write(path, two_outputs());
  NpzReader archive(path);
  CHECK(archive.names() == std::vector<std::string>{"scores", "a,b"});
  CHECK(archive.read("scores").shape() == Shape{2, 2, 1});
}

TEST_CASE("predictions go where a link leads, which stays") {
  namespace fs = std::filesystem;
  const test::TempFolder folder;
  fs::create_directories(folder.file("far"));
  fs::create_symlink("far/y.csv", folder.file("y.csv"));  // there is none yet
  for (int time = 0; time < 2; ++time) {
    check_predictions_folder(folder.file("y.csv"));
    write(folder.file("y.csv"), two_outputs());
    CHECK(fs::is_symlink(folder.file("y.csv")));
    CHECK(fs::is_regular_file(fs::symlink_status(folder.file("far/y.csv"))));
  }
}

TEST_CASE("the name that is given says how predictions are written, not where its link leads") {
  namespace fs = std::filesystem;
  const test::TempFolder folder;
  for (const char* extension : {".csv", ".jsonl"}) {
    fs::create_symlink("far.npy", folder.file(std::string("y") + extension));
    write(folder.file(std::string("y") + extension), two_outputs());
    CHECK(folder.read("far.npy") == written(extension));
  }
  fs::create_symlink("0123abcd", folder.file("y.npz"));  // as in a store by content
  write(folder.file("y.npz"), two_outputs());
  CHECK(NpzReader(folder.file("0123abcd")).names() == std::vector<std::string>{"scores", "a,b"});
}

TEST_CASE("predictions take the place of no folder and not of the samples") {
  namespace fs = std::filesystem;
  const test::TempFolder folder;
  const auto code = [&](const std::string& output, const std::string& input) {
    try {
      check_predictions_folder(output, input);
    } catch (const ConfigError& error) {
      return static_cast<int>(error.exit_code());
    }
    return 0;
  };
  fs::create_directories(folder.file("d.npy"));
  const std::string x = folder.write("x.npy", "samples");
  fs::create_symlink("x.npy", folder.file("link.npy"));
  CHECK(code(folder.file("d.npy"), x) == 74);
  CHECK(code(x, x) == 2);
  CHECK(code(folder.file("link.npy"), x) == 2);
  CHECK(code(x, folder.file("y.npy")) == 0);
  CHECK(code(folder.file("y.npy"), x) == 0);
}

TEST_CASE("what cannot be written is said before anything is computed") {
  for (const char* path : {"y.npy", "y.npz", "y.csv", "a/b.jsonl"}) {
    CHECK_NOTHROW(prediction_format(path, "", 1));
  }
  const auto message = [](const char* path, size_t outputs) -> std::string {
    try {
      prediction_format(path, "", outputs);
    } catch (const ConfigError& error) {
      CHECK(error.exit_code() == ExitCode::kConfig);
      return error.diagnostics().list()[0].message;
    }
    return "no error";
  };
  CHECK(message("y.txt", 1) == "`--output y.txt` has no known file extension");
  CHECK(message("y", 1) == "`--output y` has no known file extension");
  CHECK(message("y.npy", 2) == "`--output y.npy`: the model has 2 outputs, a .npy file holds one");
}

}  // namespace
}  // namespace meshtrain
