#include "data/named_sets.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "data/dataset.h"
#include "data/sources.h"
#include "source_config.h"
#include "support/temp_folder.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using test::Caught;
using test::caught;
using test::value;

// A machine whose only data sets are those in `cache` and `keras`.
struct Machine {
  Machine() {
    setenv("MESHTRAIN_CACHE", folder.file("cache").c_str(), 1);
    setenv("KERAS_HOME", folder.file("keras").c_str(), 1);
    unsetenv("MESHTRAIN_DATA");
    fs::create_directories(cache());
    fs::create_directories(keras());
  }
  ~Machine() {
    unsetenv("MESHTRAIN_CACHE");
    unsetenv("KERAS_HOME");
  }
  std::string cache() const { return folder.file("cache/datasets"); }
  std::string keras() const { return folder.file("keras/datasets"); }
  // Reads a source as a config in `folder`/config would.
  Dataset read(const std::string& name, const std::string& split,
               const std::string& label_mode = "fine") const {
    return read_source(
        test::object(name, {{"split", value(split)}, {"label_mode", value(label_mode)}}),
        folder.file("config"));
  }

  test::TempFolder folder;
};

HostTensor bytes(Shape shape, uint8_t first) {
  HostTensor tensor(DType::kUInt8, std::move(shape));
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<uint8_t>()[i] = static_cast<uint8_t>(first + i);
  }
  return tensor;
}

void write_mnist(const std::string& path) {
  std::vector<NamedTensor> arrays;
  arrays.push_back({"x_train", bytes({6, 28, 28}, 1)});
  arrays.push_back({"y_train", bytes({6}, 0)});
  arrays.push_back({"x_test", bytes({2, 28, 28}, 7)});
  arrays.push_back({"y_test", bytes({2}, 5)});
  write_npz(path, arrays);
}

void write_gzip(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) ==
          static_cast<int>(content.size()));
  gzclose(file);
}

// An IDX file of bytes that count from `first`.
std::string idx(const std::vector<uint8_t>& sizes, uint8_t first) {
  std::string text = {'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  size_t count = 1;
  for (const uint8_t size : sizes) {
    text += std::string(3, '\0') + static_cast<char>(size);
    count *= size;
  }
  for (size_t i = 0; i < count; ++i) {
    text += static_cast<char>(first + i);
  }
  return text;
}

struct TarMember {
  std::string name, content;
};

std::string tar(const std::vector<TarMember>& members) {
  std::string text;
  for (const TarMember& member : members) {
    std::string header(512, '\0');
    header.replace(0, member.name.size(), member.name);
    header.replace(124, 11, fmt::format("{:011o}", member.content.size()));
    header.replace(156, 1, "0");
    header.replace(257, 5, "ustar");
    text += header + member.content;
    text += std::string((512 - text.size() % 512) % 512, '\0');
  }
  return text + std::string(1024, '\0');
}

// `count` records: the labels, then planes of one colour each.
std::string records(int count, std::string labels) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += labels;
    for (int plane = 0; plane < 3; ++plane) {
      text += std::string(1024, static_cast<char>(10 * i + plane));
    }
    for (char& label : labels) {
      ++label;
    }
  }
  return text;
}

std::string cifar10_tar() {
  std::vector<TarMember> members = {{"cifar-10-batches-bin/batches.meta.txt", "airplane\n"}};
  for (const int i : {2, 1, 5, 4, 3}) {
    members.push_back({fmt::format("cifar-10-batches-bin/data_batch_{}.bin", i),
                       records(2, std::string(1, static_cast<char>(i)))});
  }
  members.push_back({"cifar-10-batches-bin/test_batch.bin", records(3, std::string(1, '\x07'))});
  return tar(members);
}

}  // namespace

TEST_CASE("named sets: files and places are those of Keras where it has them") {
  REQUIRE(named_sets().size() == 4);
  CHECK(find_named_set("imagenet") == nullptr);
  for (const NamedSet& set : named_sets()) {
    CHECK(find_named_set(set.name) == &set);
    for (const SetFile& file : set.files) {
      CHECK(std::string(file.sha256).size() == 64);
      CHECK(std::string(file.url).ends_with(fs::path(file.path).filename().string()));
    }
  }
  const Machine machine;
  CHECK(dataset_folders("here") ==
        std::vector<std::string>{"here", machine.cache(), machine.keras()});
  setenv("MESHTRAIN_DATA", "/data", 1);
  CHECK(dataset_folders("here") ==
        std::vector<std::string>{"here", "/data", machine.cache(), machine.keras()});
  unsetenv("MESHTRAIN_DATA");
  CHECK(manual_steps(*find_named_set("mnist"), "/sets") ==
        std::vector<std::string>{
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz goes to "
            "/sets/mnist.npz (11,490,434 bytes, SHA-256 "
            "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1)"});
}

TEST_CASE("mnist: Keras' archive from either cache") {
  const Machine machine;
  for (const std::string& folder : {machine.keras(), machine.cache()}) {
    write_mnist(folder + "/mnist.npz");
    const Dataset train = machine.read("mnist", "train");
    CHECK(train.inputs[0].rows->shape() == Shape{6, 28, 28, 1});
    CHECK(train.inputs[0].rows->dtype() == DType::kUInt8);
    CHECK(test::whole(train.targets[0].rows).at(5) == 5);
    const Dataset test = machine.read("mnist", "test");
    CHECK(test.inputs[0].rows->shape() == Shape{2, 28, 28, 1});
    CHECK(test::whole(test.inputs[0].rows).at(0) == 7);
    CHECK(test.description == "mnist test");
    fs::remove(folder + "/mnist.npz");
  }
}

TEST_CASE("mnist: the original files beside the config") {
  const Machine machine;
  const std::string folder = machine.folder.file("config");
  write_gzip(folder + "/t10k-images-idx3-ubyte.gz", idx({2, 28, 28}, 3));
  write_gzip(folder + "/t10k-labels-idx1-ubyte.gz", idx({2}, 8));
  const Dataset data = machine.read("mnist", "test");
  CHECK(data.inputs[0].rows->shape() == Shape{2, 28, 28, 1});
  CHECK(test::whole(data.targets[0].rows).at(1) == 9);
  CHECK(caught([&] { machine.read("mnist", "train"); }).code == "E300");
}

TEST_CASE("mnist: the genuine test images") {
  const char* given = std::getenv("MESHTRAIN_DATA");
  const std::string folder = given != nullptr ? given : MESHTRAIN_SOURCE_DIR "/../shared/datasets";
  if (!fs::exists(folder + "/t10k-images-idx3-ubyte.gz")) {
    MESSAGE("skipped: no MNIST in " << folder);
    return;
  }
  const Dataset data = read_source(test::object("mnist", {{"split", value("test")}}), folder);
  CHECK(data.inputs[0].rows->shape() == Shape{10000, 28, 28, 1});
  CHECK(test::whole(data.targets[0].rows).at(0) == 7);
}

TEST_CASE("fashion_mnist: the files in their own folder") {
  const Machine machine;
  write_gzip(machine.cache() + "/fashion-mnist/train-images-idx3-ubyte.gz", idx({3, 28, 28}, 0));
  write_gzip(machine.cache() + "/fashion-mnist/train-labels-idx1-ubyte.gz", idx({3}, 0));
  CHECK(machine.read("fashion_mnist", "train").inputs[0].rows->shape() == Shape{3, 28, 28, 1});
}

TEST_CASE("cifar10: batches in their order with channels last") {
  const Machine machine;
  write_gzip(machine.cache() + "/cifar-10-binary.tar.gz", cifar10_tar());
  const Dataset train = machine.read("cifar10", "train");
  CHECK(train.inputs[0].rows->shape() == Shape{10, 32, 32, 3});
  CHECK(train.targets[0].rows->shape() == Shape{10, 1});
  const HostTensor labels = test::whole(train.targets[0].rows);
  std::vector<double> found;
  for (int64_t i = 0; i < labels.size(); ++i) {
    found.push_back(labels.at(i));
  }
  CHECK(found == std::vector<double>{1, 2, 2, 3, 3, 4, 4, 5, 5, 6});
  const HostTensor image = train.inputs[0].rows->read_range(1, 2);
  for (int64_t i = 0; i < image.size(); ++i) {
    REQUIRE(image.at(i) == 10 + i % 3);
  }
  CHECK(test::whole(machine.read("cifar10", "test").targets[0].rows).at(2) == 9);
}

TEST_CASE("cifar100: fine or coarse labels") {
  const Machine machine;
  write_gzip(machine.cache() + "/cifar-100-binary.tar.gz",
             tar({{"cifar-100-binary/test.bin", records(1, "\x03\x20")},
                  {"cifar-100-binary/train.bin", records(2, "\x01\x10")}}));
  CHECK(test::whole(machine.read("cifar100", "train").targets[0].rows).at(1) == 0x11);
  CHECK(test::whole(machine.read("cifar100", "train", "coarse").targets[0].rows).at(1) == 2);
  CHECK(test::whole(machine.read("cifar100", "test").targets[0].rows).at(0) == 0x20);
}

TEST_CASE("named sets: one that is missing says how to get it") {
  const Machine machine;
  const Caught error = caught([&] { machine.read("cifar10", "train"); });
  CHECK(error.code == "E300");
  CHECK(error.says("the data set `cifar10` is not on this machine; looked in " +
                   machine.folder.file("config") + ", " + machine.cache() + ", " +
                   machine.keras()));
  CHECK(error.says("run `meshtrain data fetch cifar10`"));
  CHECK(error.says("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz goes to " +
                   machine.cache() + "/cifar-10-binary.tar.gz (170,052,171 bytes, SHA-256 c4a38c"));
}

TEST_CASE("cifar: damaged archives are refused") {
  const Machine machine;
  const std::string path = machine.cache() + "/cifar-10-binary.tar.gz";
  const auto refused = [&](const std::string& says) {
    const Caught error = caught([&] { machine.read("cifar10", "test"); });
    CHECK_MESSAGE(error.code == "E306", error.text);
    CHECK_MESSAGE(error.says(says), error.text);
  };
  write_gzip(path, cifar10_tar());
  fs::resize_file(path, fs::file_size(path) / 2);
  refused("the compressed data end early");
  write_gzip(path, cifar10_tar().substr(0, 20'000));
  refused("the archive ends within `cifar-10-batches-bin/data_batch_5.bin`: truncated?");
  write_gzip(path, "no archive");
  refused("no tar archive, or a damaged one");
  write_gzip(path, tar({{"cifar-10-batches-bin/data_batch_1.bin", records(1, "a")}}));
  refused("the archive has no member `cifar-10-batches-bin/test_batch.bin`");
  write_gzip(path, tar({{"cifar-10-batches-bin/test_batch.bin", records(1, "ab")}}));
  refused("`cifar-10-batches-bin/test_batch.bin` has 3,074 bytes, records of 3073 were expected");
  std::string huge = tar({{"cifar-10-batches-bin/test_batch.bin", ""}});
  huge.replace(124, 11, "77777777777");
  write_gzip(path, huge);
  refused("the archive is damaged: a member of `77777777777` bytes");
  huge.replace(124, 11, "not octal..");
  write_gzip(path, huge);
  refused("the archive is damaged: a member of `not octal..` bytes");
}

}  // namespace meshtrain

TEST_SUITE_END();
