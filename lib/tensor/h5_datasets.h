// Datasets of an HDF5 file, read some rows at a time: files of any size work.
//
// As with weights (h5.h), the library runs in a child process, which lives as long as this object.
// A hostile file that takes over the library, or makes it run for ever, gains nothing there. The
// library serves one call at a time, and so does the child.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/isolate.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain {

struct H5Dataset {
  int id = 0;
  DType dtype = DType::kFloat32;
  Shape shape;
  bool is_chunked = false;  // rows are read fast in their order, not in others
};

class H5Datasets {
 public:
  // Throws ConfigError (exit 3): E300 not there, E320 no HDF5 file, or a damaged one.
  explicit H5Datasets(const std::string& path);

  const std::string& path() const { return path_; }
  // Paths of all datasets ("group/x"), sorted.
  const std::vector<std::string>& names() const { return names_; }

  // Throws ConfigError E320 for a dataset that is missing, is behind a soft or external link, is in
  // other files, needs a foreign filter, holds no numbers, or declares more elements than are
  // stored. Numbers in the other byte order are converted on reading; a scalar is an array of one
  // element.
  H5Dataset open(const std::string& name);

  // Copies rows `order` of dimension 0 to `to`. Thread-safe. Throws ConfigError E320 for damaged
  // data.
  void read(const H5Dataset& dataset, std::span<const int64_t> order, std::byte* to) const;

 private:
  [[noreturn]] void fail() const;  // says what became of the child
  void need(void* to, size_t count) const;
  uint64_t number(uint64_t limit) const;
  std::string text() const;
  void expect(char kind) const;  // throws what the child says instead
  // Requests rows; `take(first, count, row_bytes)` receives `count` rows from number `first` on.
  template <class Take>
  void request(const H5Dataset& dataset, std::span<const int64_t> order, Take&& take) const;

  std::string path_;
  std::vector<std::string> names_;
  int num_open_ = 0;
  mutable std::mutex mutex_;
  std::unique_ptr<IsolatedProcess> process_;
};

}  // namespace meshtrain
