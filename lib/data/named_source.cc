// Sources mnist, fashion_mnist, cifar10 and cifar100: the files that `meshtrain data fetch` gets.
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/named_sets.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

struct Samples {
  HostTensor images, labels;
};

// Where `file` of the set lies, or nothing.
std::optional<std::string> find_file(const std::vector<std::string>& folders,
                                     const std::string& file) {
  for (const std::string& folder : folders) {
    std::error_code error;
    std::string path = folder + "/" + file;
    if (fs::exists(path, error)) {
      return path;
    }
  }
  return std::nullopt;
}

HostTensor with_channel(HostTensor images) {
  const Shape shape = images.shape();
  if (shape.size() == 3) {
    images.reshape({shape[0], shape[1], shape[2], 1});
  }
  return images;
}

// The names of MNIST's own files, of which Fashion-MNIST's are a copy.
std::string idx_name(const char* folder, bool is_train, const char* what) {
  return fmt::format("{}{}-{}-ubyte.gz", folder, is_train ? "train" : "t10k", what);
}

std::optional<Samples> find_idx(const std::vector<std::string>& folders, const char* folder,
                                bool is_train) {
  const auto images = find_file(folders, idx_name(folder, is_train, "images-idx3"));
  const auto labels = find_file(folders, idx_name(folder, is_train, "labels-idx1"));
  if (!images || !labels) {
    return std::nullopt;
  }
  return Samples{with_channel(read_idx(*images)), read_idx(*labels)};
}

// mnist.npz of Keras, or the original files.
std::optional<Samples> find_mnist(const std::vector<std::string>& folders, bool is_train) {
  if (const auto path = find_file(folders, "mnist.npz")) {
    NpzReader archive(*path);
    return Samples{with_channel(archive.read(is_train ? "x_train" : "x_test")),
                   archive.read(is_train ? "y_train" : "y_test")};
  }
  return find_idx(folders, "", is_train);
}

std::optional<Samples> find_cifar(const ConfigObject& source,
                                  const std::vector<std::string>& folders, bool is_train) {
  const bool is_100 = source.class_name == "cifar100";
  const auto path =
      find_file(folders, is_100 ? "cifar-100-binary.tar.gz" : "cifar-10-binary.tar.gz");
  if (!path) {
    return std::nullopt;
  }
  std::vector<std::string> members;
  if (is_100) {
    members = {is_train ? "cifar-100-binary/train.bin" : "cifar-100-binary/test.bin"};
  } else if (is_train) {
    for (int i = 1; i <= 5; ++i) {
      members.push_back(fmt::format("cifar-10-batches-bin/data_batch_{}.bin", i));
    }
  } else {
    members = {"cifar-10-batches-bin/test_batch.bin"};
  }
  const bool is_fine = is_100 && source.string("label_mode") == "fine";
  CifarImages read = read_cifar(*path, members, is_100 ? 2 : 1, is_fine ? 1 : 0);
  return Samples{std::move(read.images), std::move(read.labels)};
}

[[noreturn]] void not_there(const ConfigObject& source, const std::vector<std::string>& folders) {
  const NamedSet& set = *find_named_set(source.class_name);
  ConfigError problem("E300", source.loc,
                      fmt::format("the data set `{}` is not on this machine; looked in {}",
                                  set.name, join(folders, ", ")));
  problem.help(fmt::format("run `meshtrain data fetch {}`", set.name));
  for (const std::string& step : manual_steps(set, datasets_folder())) {
    problem.note("or by hand: " + step);
  }
  throw problem;
  MESHTRAIN_CHECK(false);
}

}  // namespace

Dataset read_named_set_source(const ConfigObject& source, const std::string& base_dir) {
  const std::vector<std::string> folders = dataset_folders(base_dir);
  const bool is_train = source.string("split") == "train";
  std::optional<Samples> samples;
  Reads reads;
  reads.run(source.loc, [&] {
    samples = source.class_name == "mnist"           ? find_mnist(folders, is_train)
              : source.class_name == "fashion_mnist" ? find_idx(folders, "fashion-mnist/", is_train)
                                                     : find_cifar(source, folders, is_train);
  });
  reads.finish();
  if (!samples) {
    not_there(source, folders);
  }
  Dataset dataset;
  dataset.description = fmt::format("{} {}", source.class_name, source.string("split"));
  dataset.inputs.push_back({"x", make_rows(std::move(samples->images))});
  dataset.targets.push_back({"y", make_rows(std::move(samples->labels))});
  return dataset;
}

}  // namespace meshtrain
