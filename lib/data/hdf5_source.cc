// The source hdf5.
#include <algorithm>

#include "data/file_rows.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "tensor/h5_datasets.h"

namespace meshtrain {
namespace {

struct Hdf5File {
  Hdf5File(const NamedFile& file)
      : watched(open_input(file.path, "E300", "E300"), file.loc), datasets(file.path) {}

  bool has(const std::string& name) const {
    return std::binary_search(datasets.names().begin(), datasets.names().end(), name);
  }

  WatchedFile watched;
  H5Datasets datasets;
};

class Hdf5Rows final : public Rows {
 public:
  Hdf5Rows(std::shared_ptr<const Hdf5File> file, H5Dataset dataset)
      : file_(std::move(file)), dataset_(std::move(dataset)) {}

  DType dtype() const override { return dataset_.dtype; }
  const Shape& shape() const override { return dataset_.shape; }
  Cost cost() const override { return dataset_.is_chunked ? Cost::kInOrder : Cost::kFile; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    file_->datasets.read(dataset_, order, to);
    file_->watched.check_unchanged();
  }

 private:
  std::shared_ptr<const Hdf5File> file_;
  H5Dataset dataset_;
};

}  // namespace

Dataset read_hdf5_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  dataset.description = fmt::format("hdf5 {}", shown_paths(source.arg("path")));
  Reads reads;
  std::vector<std::shared_ptr<Hdf5File>> files;
  std::vector<NamedFile> named;
  reads.run(source.loc_of("path"), [&] { named = find_files(source.arg("path"), base_dir); });
  for (const NamedFile& file : named) {
    reads.run(file.loc, [&] { files.push_back(std::make_shared<Hdf5File>(file)); });
  }
  reads.finish();
  const auto read = [&](const Wanted& wanted) {
    return reads.rows(wanted.loc, [&] {
      std::vector<FileArray> parts;
      for (const std::shared_ptr<Hdf5File>& file : files) {
        H5Dataset found = file->datasets.open(wanted.text);
        parts.push_back(
            {file->datasets.path(), std::make_shared<Hdf5Rows>(file, std::move(found))});
      }
      return join_files(std::move(parts), wanted.loc);
    });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    // Data to predict from need no labels; but a name that the user wrote must be there.
    if (!wanted.is_default || files[0]->has(wanted.text)) {
      dataset.targets.push_back({wanted.array, read(wanted)});
    }
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = cast_rows(read(wanted), DType::kFloat32);
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
