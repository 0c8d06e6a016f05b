// Sources mnist, fashion_mnist, cifar10 and cifar100: the files that `meshtrain data fetch` gets.
#include <algorithm>
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

std::optional<Samples> find_cifar10(const std::vector<std::string>& folders, bool is_train) {
  const auto path = find_file(folders, "cifar-10-binary.tar.gz");
  if (!path) {
    return std::nullopt;
  }
  std::vector<std::string> members;
  for (int i = 1; is_train && i <= 5; ++i) {
    members.push_back(fmt::format("cifar-10-batches-bin/data_batch_{}.bin", i));
  }
  if (!is_train) {
    members = {"cifar-10-batches-bin/test_batch.bin"};
  }
  CifarImages read = read_cifar(*path, members, 1, 0);
  return Samples{std::move(read.images), std::move(read.labels)};
}

std::optional<Samples> find_cifar100(const std::vector<std::string>& folders, bool is_train,
                                     CifarLabels labels) {
  const auto path = find_file(folders, "cifar-100-binary.tar.gz");
  if (!path) {
    return std::nullopt;
  }
  const char* const member = is_train ? "cifar-100-binary/train.bin" : "cifar-100-binary/test.bin";
  CifarImages read = read_cifar(*path, {member}, 2, labels == CifarLabels::kFine ? 1 : 0);
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

// No samples of this shape where one of the files is there: what is known without unpacking it.
std::optional<Samples> find_shape(const std::vector<std::string>& folders, const Shape& sample,
                                  std::initializer_list<std::string> files) {
  if (std::none_of(files.begin(), files.end(),
                   [&](const std::string& file) { return find_file(folders, file).has_value(); })) {
    return std::nullopt;
  }
  Shape shape = {1};
  shape.insert(shape.end(), sample.begin(), sample.end());
  Samples one{HostTensor(DType::kUInt8, shape), HostTensor(DType::kUInt8, {1})};
  std::fill_n(one.images.data<uint8_t>(), one.images.size(), uint8_t{0});
  one.labels.set(0, 0);
  return one;
}

// `find` gives the samples of a split, where their files are in one of the folders, `files`.
template <class Find>
Dataset read_set(const std::string& split, const SourceContext& context, const Shape& sample,
                 std::initializer_list<std::string> files, Find&& find) {
  const std::vector<std::string> folders = dataset_folders(context.base_dir);
  std::optional<Samples> samples;
  Reads reads;
  reads.run(context.source.loc, [&] {
    samples = context.limits.beginning ? find_shape(folders, sample, files)
                                       : find(folders, split == "train");
  });
  reads.finish();
  if (!samples) {
    not_there(context.source, folders);
  }
  Dataset dataset;
  dataset.description = fmt::format("{} {}", context.source.class_name, split);
  dataset.inputs.push_back({"x", make_rows(std::move(samples->images))});
  dataset.targets.push_back({"y", make_rows(std::move(samples->labels))});
  return dataset;
}

}  // namespace

Dataset read_mnist_source(const SplitOptions& source, const SourceContext& context) {
  return read_set(source.split, context, {28, 28, 1},
                  {"mnist.npz", idx_name("", source.split.value == "train", "images-idx3")},
                  find_mnist);
}

Dataset read_fashion_mnist_source(const SplitOptions& source, const SourceContext& context) {
  return read_set(source.split, context, {28, 28, 1},
                  {idx_name("fashion-mnist/", source.split.value == "train", "images-idx3")},
                  [](const std::vector<std::string>& folders, bool is_train) {
                    return find_idx(folders, "fashion-mnist/", is_train);
                  });
}

Dataset read_cifar10_source(const SplitOptions& source, const SourceContext& context) {
  return read_set(source.split, context, {32, 32, 3}, {"cifar-10-binary.tar.gz"}, find_cifar10);
}

Dataset read_cifar100_source(const Cifar100Options& source, const SourceContext& context) {
  return read_set(source.split, context, {32, 32, 3}, {"cifar-100-binary.tar.gz"},
                  [&](const std::vector<std::string>& folders, bool is_train) {
                    return find_cifar100(folders, is_train, source.label_mode);
                  });
}

}  // namespace meshtrain
