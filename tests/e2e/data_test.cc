// `meshtrain data` and images, as users run them.
#include <doctest/doctest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "command.h"
#include "data/digits.h"
#include "support/file_server.h"
#include "support/png_file.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

using test::write_png;

const std::string kImages = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/images/folder";

// FOLDER/DIGIT/NUMBER.png for each of the built-in digits.
void write_digits(const std::string& folder, int64_t samples) {
  const DigitImages digits = make_digits(samples, 1);
  for (int64_t i = 0; i < samples; ++i) {
    const int label = digits.labels.data<uint8_t>()[i];
    write_png(folder + "/" + std::to_string(label) + "/" + std::to_string(10000 + i) + ".png",
              digits.images.data<uint8_t>() + i * 784);
  }
}

constexpr const char* kConfig = R"(
vars:
  folder: &folder {source: image_folder, directory: digits, color_mode: grayscale, image_size: 28x28,
                   seed: 7, validation_split: 0.2}
distribution: {device_mesh: {shape: [2], devices: "cpu:2"}}
data:
  train: {<<: *folder, subset: training}
  validation: {<<: *folder, subset: validation}
  transform: [{Rescaling: {scale: =1/255}}]
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {units: 64, activation: relu}
    - Dense: {units: 10, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.003}}, loss: sparse_categorical_crossentropy, metrics: [accuracy]}
fit: {batch_size: 50, epochs: 6}
seed: 1
)";

}  // namespace

TEST_CASE("image folder: digits on disk are learned and single images recognised") {
  TemporaryFolder folder;
  write_digits(folder.file("digits"), 2000);
  folder.write("digits.yaml", kConfig);
  const Result train =
      meshtrain({"train", "digits.yaml", "-o", "run", "--log-format", "json"}, folder.path());
  REQUIRE_MESSAGE(train.exit_code == 0, train.err);
  double accuracy = 0;
  for (const std::string& line : lines_of(train.out)) {
    const auto event = parse_json(line);
    if (event["event"] == "epoch") {
      CHECK(event["steps"] == 32);  // of 1600 images
      accuracy = event["logs"]["val_accuracy"];
    }
  }
  MESSAGE("validation accuracy " << accuracy);
  CHECK(accuracy >= 0.85);
  const Result predict =
      meshtrain({"predict", "digits.yaml", "--weights", "run/weights.safetensors", "--input",
                 "digits/3", "--output", "three.npy"},
                folder.path());
  REQUIRE_MESSAGE(predict.exit_code == 0, predict.err);
  const HostTensor three = read_npy(folder.file("three.npy"));
  REQUIRE(three.shape() == Shape{200, 10});
  int right = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const float* const row = three.data<float>() + 10 * i;
    right += std::max_element(row, row + 10) - row == 3 ? 1 : 0;
  }
  CHECK(right >= 170);
  std::string first = "~";
  for (const auto& entry : fs::directory_iterator(folder.file("digits/3"))) {
    first = std::min(first, entry.path().filename().string());
  }
  const Result one = meshtrain({"predict", "digits.yaml", "--weights", "run/weights.safetensors",
                                "--input", "digits/3/" + first, "--output", "one.npy"},
                               folder.path());
  REQUIRE_MESSAGE(one.exit_code == 0, one.err);
  const HostTensor alone = read_npy(folder.file("one.npy"));
  REQUIRE(alone.shape() == Shape{1, 10});
  CHECK(std::abs(alone.at(3) - three.at(3)) < 1e-5);  // the first of the folder
}

TEST_CASE("image folder: a damaged image ends the run with its name or is left out") {
  TemporaryFolder folder;
  write_digits(folder.file("digits"), 100);
  std::ofstream(folder.file("digits/4/10004.png"), std::ios::binary) << "\x89PNG\r\n\x1a\nnonsense";
  folder.write("digits.yaml", kConfig);
  const Result bad = meshtrain({"train", "digits.yaml", "-o", "run"}, folder.path());
  CHECK(bad.exit_code == 3);
  CHECK(bad.err.find("error[E322]: `digits/4/10004.png`: libpng: ") != std::string::npos);
  CHECK(bad.err.find("on_bad_record: skip") != std::string::npos);
  const Result good =
      meshtrain({"train", "digits.yaml", "-o", "run2", "data.train.on_bad_record=skip",
                 "data.validation.on_bad_record=skip"},
                folder.path());
  CHECK_MESSAGE(good.exit_code == 0, good.err);
}

TEST_CASE("data fetch: what goes wrong is said and leaves no file") {
  TemporaryFolder served, folder;
  served.write("mnist.npz", "not the digits");
  const test::FileServer server(served.path());
  const auto fetch = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"data", "fetch"});
    args.insert(args.end(), {"--dir", "sets"});
    return meshtrain(args, folder.path());
  };
  const auto says = [](const Result& result, const std::string& text) {
    CHECK_MESSAGE(result.err.find(text) != std::string::npos, result.err);
  };
  const std::string by_hand =
      "note: or by hand: https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz "
      "goes "
      "to sets/mnist.npz (11,490,434 bytes, SHA-256 "
      "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1)";
  const Result wrong = fetch({"mnist", "--mirror", server.url("range")});
  CHECK(wrong.exit_code == 3);
  says(wrong, "error[E326]: " + server.url("range/mnist.npz") +
                  " is not the file that was expected: it has 14 bytes, not 11,490,434");
  const Result missing = fetch({"cifar10", "mnist", "--mirror", server.url("none/")});
  CHECK(missing.exit_code == 3);
  says(missing, "error[E325]: cannot download " + server.url("none/cifar-10-binary.tar.gz"));
  says(missing, "error: 404");
  says(missing, by_hand);
  const Result away = fetch({"mnist", "--mirror", "http://127.0.0.1:1"});
  CHECK(away.exit_code == 3);
  says(away, "Failed to connect to 127.0.0.1 port 1");
  says(away, by_hand);
  const Result offline = fetch({"mnist", "--offline"});
  CHECK(offline.exit_code == 3);
  says(offline, "error[E325]: `sets/mnist.npz` is not there, and no network may be used");
  says(offline, by_hand);
  const Result unknown = fetch({"mnits"});
  CHECK(unknown.exit_code == 2);
  says(unknown, "error[E140]: no data set `mnits`");
  says(unknown, "did you mean `mnist`?");
  folder.write("file", "");
  const Result unwritable =
      meshtrain({"data", "fetch", "mnist", "--dir", "file/sets"}, folder.path());
  CHECK(unwritable.exit_code == 74);
  CHECK(!fs::exists(folder.file("sets/mnist.npz")));
  CHECK((!fs::exists(folder.file("sets")) || fs::is_empty(folder.file("sets"))));
}

TEST_CASE("data fetch: an interrupted download ends with 130 and keeps its part") {
  TemporaryFolder served, folder;
  served.write("mnist.npz", std::string(11'490'434, 'x'));
  const test::FileServer server(served.path());
  Command command;
  command.args = {"data", "fetch", "mnist", "--dir", "sets", "--mirror", server.url("slow")};
  command.folder = folder.path();
  command.watch = [&](const std::string&, const std::string&, int pid) {
    std::error_code error;
    const auto size = fs::file_size(folder.file("sets/mnist.npz.part"), error);
    if (error || size < 40'000) {
      return false;
    }
    ::kill(pid, SIGINT);
    return true;
  };
  const Result result = run(command);
  CHECK(result.exit_code == 130);
  CHECK(result.err == "stopped; the next `meshtrain data fetch` continues sets/mnist.npz.part\n");
  CHECK(!fs::exists(folder.file("sets/mnist.npz")));
  CHECK(fs::file_size(folder.file("sets/mnist.npz.part")) >= 40'000);
  // The rest comes, and only then is it seen that these are not the digits.
  const Result again = meshtrain(
      {"data", "fetch", "mnist", "--dir", "sets", "--mirror", server.url("range")}, folder.path());
  CHECK(again.exit_code == 3);
  CHECK(again.err.find("error[E326]: ") == 0);
  CHECK(fs::is_empty(folder.file("sets")));
}

TEST_CASE("named sets: a config without the files says what to run") {
  TemporaryFolder folder;
  folder.write("mnist.yaml",
               "data: {train: mnist}\n"
               "model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: 10}]}\n"
               "compile: {loss: sparse_categorical_crossentropy}\n");
  Command command;
  command.args = {"train", "mnist.yaml"};
  command.folder = folder.path();
  command.environment = {"MESHTRAIN_CACHE=" + folder.file("cache"), "KERAS_HOME=/none",
                         "MESHTRAIN_DATA="};
  const Result result = run(command);
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("error[E300]: the data set `mnist` is not on this machine; looked in ., " +
                        folder.file("cache/datasets") + ", /none/datasets") == 0);
  CHECK(result.err.find("= help: run `meshtrain data fetch mnist`") != std::string::npos);
}

TEST_CASE("image folder: classes that have other numbers in validation are refused") {
  TemporaryFolder folder;
  const DigitImages digits = make_digits(1, 1);
  for (const char* image :
       {"a/cat/1.png", "a/dog/1.png", "a/eel/1.png", "b/cat/1.png", "b/eel/1.png"}) {
    write_png(folder.file(image), digits.images.data<uint8_t>());
  }
  folder.write("c.yaml", R"(
data:
  train: {source: image_folder, directory: a, color_mode: grayscale, image_size: 28x28}
  validation: {source: image_folder, directory: b}
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: 3}]}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {epochs: 1}
)");
  const Result refused = meshtrain({"train", "c.yaml", "-q"}, folder.path());
  CHECK(refused.exit_code == 3);
  CHECK(refused.err.find("error[E324]: the validation and the train data number their classes "
                         "differently: cat, eel; cat, dog, eel") != std::string::npos);
  std::filesystem::create_directory(folder.file("b/dog"));  // no image, but a number
  const Result inspected =
      meshtrain({"data", "inspect", "c.yaml", "--format", "json"}, folder.path());
  REQUIRE_MESSAGE(inspected.exit_code == 0, inspected.err);
  const std::string validation = json_text(parse_json(inspected.out)["parts"][1]);
  CHECK_MESSAGE(validation.find("\"name\":\"eel\"") != std::string::npos, validation);
  CHECK(meshtrain({"train", "c.yaml", "-q"}, folder.path()).exit_code == 0);
}

TEST_CASE("validate --data decodes all images and names each bad one") {
  TemporaryFolder folder;
  const DigitImages digits = make_digits(6, 1);
  for (int64_t i = 0; i < 6; ++i) {
    for (const char* part : {"train", "validation"}) {
      write_png(folder.file(fmt::format("{}/{}/{}.png", part, i % 2 == 0 ? "x" : "y", i)),
                digits.images.data<uint8_t>() + i * 784);
    }
  }
  folder.write("c.yaml", R"(
data:
  train: {source: image_folder, directory: train, color_mode: grayscale, image_size: 28x28}
  validation: {source: image_folder, directory: validation}
  transform: [{Rescaling: {scale: =1/255}}]
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: 2}]}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {epochs: 1}
)");
  const std::vector<std::string> words = {"validate", "c.yaml", "--data"};
  CHECK(meshtrain(words, folder.path()).exit_code == 0);
  folder.write("train/x/empty.png", "");
  folder.write("train/y/none.png", "no image");
  folder.write("validation/y/cut.png", folder.read("train/y/1.png").substr(0, 60));
  folder.write("validation/x/cut.jpg", "\xff\xd8\xff\xe0");
  const Result result = meshtrain(words, folder.path());
  CHECK(result.exit_code == 3);
  CHECK_MESSAGE(result.out.find("c.yaml: 4 errors, 0 warnings") == 0, result.out);
  for (const char* image :
       {"train/x/empty.png", "train/y/none.png", "validation/y/cut.png", "validation/x/cut.jpg"}) {
    CAPTURE(image);
    CHECK_MESSAGE(result.err.find(image) != std::string::npos, result.err);
  }
  CHECK(result.err.find("error[E322]") == 0);
  CHECK(result.err.find("--> c.yaml:3:44") != std::string::npos);
}

TEST_CASE("data inspect: the parts of a config with what is in them") {
  TemporaryFolder folder;
  folder.write("c.yaml", R"(
data:
  train: {source: digits, samples: 130}
  test: {source: random, samples: 20, shape: [28, 28, 1], classes: 3}
model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: 10}]}
compile: {loss: sparse_categorical_crossentropy}
fit: {validation_split: 0.2, batch_size: 32}
)");
  const Result text = meshtrain({"data", "inspect", "c.yaml"}, folder.path());
  REQUIRE_MESSAGE(text.exit_code == 0, text.err);
  CHECK(text.out.find("train: digits (train, 130 samples)\n"
                      "104 samples, 4 batches of 32 per epoch, the last of 8\n"
                      "\n"
                      "array  dtype  shape             min  max") == 0);
  CHECK(text.out.find("\nclasses of y  samples  share\n0                  11  10.6%\n") !=
        std::string::npos);
  const Result json = meshtrain({"data", "inspect", "c.yaml", "--format", "json"}, folder.path());
  const auto parts = parse_json(json.out)["parts"];
  REQUIRE(parts.size() == 3);
  CHECK(parts[0]["part"] == "train");
  CHECK(parts[0]["samples"] == 104);
  CHECK(parts[1]["part"] == "validation");
  CHECK(parts[1]["samples"] == 26);
  CHECK(parts[1]["batches"] == 1);
  CHECK(parts[2]["batches"] == 1);
  CHECK(parts[0]["arrays"][0]["min"] == 0);
  CHECK(parts[0]["arrays"][0]["max"] == 255);
  CHECK(parts[0]["arrays"][0]["bytes"] == 104 * 784);
  CHECK(parts[0]["arrays"][1]["classes"].size() == 10);
  CHECK(parts[2]["arrays"][1]["classes"].size() == 3);
}

TEST_CASE("data inspect: files and folders by what is in them") {
  TemporaryFolder folder;
  std::vector<NamedTensor> arrays;
  arrays.push_back({"x", tensor_of<float>(DType::kFloat32, {2, 3}, {1, 2, 3, 4, 5, NAN})});
  arrays.push_back({"y", tensor_of<int>(DType::kInt64, {4}, {7, -1, 7, 7})});
  write_npz(folder.file("a.npz"), arrays);
  write_npy(folder.file("renamed.bin"), arrays[0].tensor);
  const auto inspect = [&](const std::string& path) {
    const Result result = meshtrain({"data", "inspect", path, "--format", "json"}, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return parse_json(result.out)["parts"][0];
  };
  const auto npz = inspect("a.npz");
  CHECK(npz["source"] == "npz a.npz");
  CHECK(npz["arrays"][0]["nan"] == 1);
  CHECK(npz["arrays"][0]["max"] == 5);
  CHECK(npz["arrays"][0]["mean"] == 3);
  CHECK(npz["arrays"][1]["classes"][0]["class"] == -1);
  CHECK(npz["arrays"][1]["classes"][1]["samples"] == 3);
  CHECK(inspect("renamed.bin")["source"] == "npy renamed.bin");
  const auto images = inspect(kImages);
  CHECK(images["samples"] == 17);
  CHECK(images["arrays"][0]["name"] == "height");
  CHECK(images["arrays"][0]["min"] == 1);
  CHECK(images["arrays"][0]["max"] == 24);
  CHECK(images["arrays"][3]["classes"][1]["name"] == "b jpeg");
  CHECK(images["arrays"][3]["classes"][1]["samples"] == 8);
  folder.write("table.csv", "a,b\n1,2\n3,4.5\n");
  const auto table = inspect("table.csv");
  CHECK(table["samples"] == 2);
  CHECK(table["table"]["columns"][1]["name"] == "b");
  CHECK(table["table"]["columns"][1]["max"] == 4.5);
  std::string tokens(1024, '\0');  // llm.c's header
  const int32_t header[] = {20240520, 1, 3};
  std::memcpy(tokens.data(), header, sizeof(header));
  folder.write("tokens.bin", tokens + std::string("\x05\0\x09\0\x02\x01", 6));
  const auto ids = inspect("tokens.bin");
  CHECK(ids["source"] == "tokens tokens.bin");
  CHECK(ids["samples"] == 3);
  CHECK(ids["arrays"][0]["name"] == "ids");
  CHECK(ids["arrays"][0]["min"] == 5);
  CHECK(ids["arrays"][0]["max"] == 258);
  const Result drafted = meshtrain({"init", "--from", "tokens.bin"}, folder.path());
  CHECK(drafted.err.find("error[E327]: tokens ") == 0);
  CHECK(drafted.err.find("help: begin with `meshtrain init gpt2_124m`") != std::string::npos);
  folder.write("noise", std::string("\x01\x02\x03", 3));
  const Result unknown = meshtrain({"data", "inspect", "noise"}, folder.path());
  CHECK(unknown.exit_code == 3);
  CHECK(unknown.err.find("error[E327]: `noise`: no kind of file that is known here (it begins with "
                         "01 02 03)") == 0);
  CHECK(meshtrain({"data", "inspect", "none.npy"}, folder.path()).exit_code == 3);
  CHECK(meshtrain({"data"}, folder.path()).exit_code == 2);
}

}  // namespace meshtrain

TEST_SUITE_END();
