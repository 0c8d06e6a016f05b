#include "data/named_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/text.h"

namespace meshtrain {
namespace {

// Sizes and SHA-256 of mnist.npz: keras/src/datasets/mnist.py. Of all others: TensorFlow Datasets,
// url_checksums/{fashion_mnist,cifar10,cifar100}.txt. Keras unpickles CIFAR's Python files; the
// binary ones hold the same bytes and need no interpreter.
#define KERAS_SETS "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
#define CIFAR "https://www.cs.toronto.edu/~kriz/"

constexpr SetFile kMnist[] = {{"mnist.npz", KERAS_SETS "mnist.npz", 11490434,
                               "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"}};
constexpr SetFile kFashionMnist[] = {
    {"fashion-mnist/train-images-idx3-ubyte.gz", KERAS_SETS "train-images-idx3-ubyte.gz", 26421880,
     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
    {"fashion-mnist/train-labels-idx1-ubyte.gz", KERAS_SETS "train-labels-idx1-ubyte.gz", 29515,
     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
    {"fashion-mnist/t10k-images-idx3-ubyte.gz", KERAS_SETS "t10k-images-idx3-ubyte.gz", 4422102,
     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
    {"fashion-mnist/t10k-labels-idx1-ubyte.gz", KERAS_SETS "t10k-labels-idx1-ubyte.gz", 5148,
     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}};
constexpr SetFile kCifar10[] = {
    {"cifar-10-binary.tar.gz", CIFAR "cifar-10-binary.tar.gz", 170052171,
     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}};
constexpr SetFile kCifar100[] = {
    {"cifar-100-binary.tar.gz", CIFAR "cifar-100-binary.tar.gz", 168513733,
     "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}};

#undef KERAS_SETS
#undef CIFAR

constexpr NamedSet kSets[] = {{"mnist", kMnist},
                              {"fashion_mnist", kFashionMnist},
                              {"cifar10", kCifar10},
                              {"cifar100", kCifar100}};

// The value of an environment variable, "" when it is not set.
std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// $`variable`, else ~/`in_home`.
std::string folder_of(const char* variable, const char* in_home) {
  const std::string given = environment(variable);
  return given.empty() ? environment("HOME") + "/" + in_home : given;
}

}  // namespace

std::span<const NamedSet> named_sets() {
  return kSets;
}

const NamedSet* find_named_set(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kSets), std::end(kSets),
                                         [&](const NamedSet& set) { return name == set.name; });
  return found == std::end(kSets) ? nullptr : found;
}

std::string datasets_folder() {
  const std::string own = environment("MESHTRAIN_CACHE");
  return (own.empty() ? folder_of("XDG_CACHE_HOME", ".cache") + "/meshtrain" : own) + "/datasets";
}

std::vector<std::string> dataset_folders(const std::string& base_dir) {
  std::vector<std::string> folders = {base_dir.empty() ? "." : base_dir};
  if (const std::string data = environment("MESHTRAIN_DATA"); !data.empty()) {
    folders.push_back(data);
  }
  folders.push_back(datasets_folder());
  folders.push_back(folder_of("KERAS_HOME", ".keras") + "/datasets");
  return folders;
}

std::vector<std::string> manual_steps(const NamedSet& set, const std::string& folder) {
  std::vector<std::string> steps;
  for (const SetFile& file : set.files) {
    steps.push_back(fmt::format("{} goes to {}/{} ({} bytes, SHA-256 {})", file.url, folder,
                                file.path, format_thousands(static_cast<int64_t>(file.num_bytes)),
                                file.sha256));
  }
  return steps;
}

}  // namespace meshtrain
