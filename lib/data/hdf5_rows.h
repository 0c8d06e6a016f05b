// Arrays in HDF5 files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/rows.h"
#include "data/source_files.h"

namespace meshtrain {

// An open file whose rows are read on demand.
class Hdf5File {
 public:
  explicit Hdf5File(const NamedFile& file);  // throws ConfigError (exit 3) E300, E320

  const std::string& path() const;
  const std::vector<std::string>& names() const;  // of all datasets ("group/x"), sorted
  bool has(const std::string& name) const;
  // A scalar is an array of one element. Throws E320 for an unreadable dataset
  // (tensor/h5_datasets.h); reading the rows throws E321 when the file has changed.
  RowsPtr rows(const std::string& name) const;

 private:
  struct Open;
  class DatasetRows;
  std::shared_ptr<Open> open_;
};

}  // namespace meshtrain
