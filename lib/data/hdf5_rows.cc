#include "data/hdf5_rows.h"

#include <algorithm>

#include "data/file_rows.h"
#include "tensor/h5_datasets.h"

namespace meshtrain {

struct Hdf5File::Open {
  explicit Open(const NamedFile& file)
      : watched(open_input(file.path, "E300", "E300"), file.loc), datasets(file.path) {}

  WatchedFile watched;
  H5Datasets datasets;
};

class Hdf5File::DatasetRows final : public Rows {
 public:
  DatasetRows(std::shared_ptr<const Open> file, H5Dataset dataset)
      : file_(std::move(file)), dataset_(std::move(dataset)) {}

  DType dtype() const override { return dataset_.dtype; }
  const Shape& shape() const override { return dataset_.shape; }
  Cost cost() const override { return dataset_.is_chunked ? Cost::kInOrder : Cost::kFile; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    file_->datasets.read(dataset_, order, to);
    file_->watched.check_unchanged();
  }

 private:
  std::shared_ptr<const Open> file_;
  H5Dataset dataset_;
};

// h5py's names begin with a slash, those of a listing do not.
static std::string within(const std::string& name) {
  return name.starts_with('/') ? name.substr(1) : name;
}

Hdf5File::Hdf5File(const NamedFile& file) : open_(std::make_shared<Open>(file)) {}

const std::string& Hdf5File::path() const {
  return open_->datasets.path();
}

const std::vector<std::string>& Hdf5File::names() const {
  return open_->datasets.names();
}

bool Hdf5File::has(const std::string& name) const {
  return std::binary_search(names().begin(), names().end(), within(name));
}

RowsPtr Hdf5File::rows(const std::string& name) const {
  return std::make_shared<DatasetRows>(open_, open_->datasets.open(within(name)));
}

}  // namespace meshtrain
