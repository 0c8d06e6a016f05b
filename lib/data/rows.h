// One array of a dataset, read some rows at a time: data need not lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

// Rows are samples, along dimension 0; there is always one. Every read of a row gives the same
// bytes, whatever was read before.
class Rows {
 public:
  virtual ~Rows() = default;
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;  // (samples, ...)

  // Copies rows `order` to `to` (order.size() x row bytes). Several threads may call it. Throws
  // FileError or ConfigError (E305, E321, E322) for what cannot be read.
  virtual void read(std::span<const int64_t> order, std::byte* to) const = 0;

  // The whole array where it lies in memory, else null.
  virtual const HostTensor* tensor() const { return nullptr; }

  // What reading costs, for the choice of a cache (data.cache).
  enum class Cost {
    kMemory,    // copying the bytes
    kFile,      // reading the bytes from a file
    kInOrder,   // little in the order of the rows, much in any other: a compressed file
    kComputed,  // every row is made anew: a decoded image
  };
  virtual Cost cost() const { return Cost::kComputed; }

  int64_t size() const { return shape()[0]; }
  size_t row_bytes() const;
  // Rows [begin, end) as a tensor.
  HostTensor read_range(int64_t begin, int64_t end) const;
  // Calls `function(first row, rows as a tensor)` for all rows in order, some megabytes at a time;
  // at once where they lie in memory.
  void for_each_block(const std::function<void(int64_t, const HostTensor&)>& function) const;

 protected:
  void check_row(int64_t row) const;  // a broken invariant when there is no such row
};

using RowsPtr = std::shared_ptr<const Rows>;

// The rows of a tensor in memory, which must have a dimension.
RowsPtr make_rows(HostTensor tensor);
// Rows [begin, end) of others.
RowsPtr slice_rows(RowsPtr rows, int64_t begin, int64_t end);
// The rows of all parts, one after the other; of one type and shape of a sample.
RowsPtr concat_rows(std::vector<RowsPtr> parts);
// The same elements under another shape of a sample, of as many elements.
RowsPtr reshape_rows(RowsPtr rows, const Shape& sample);
// Every number in another type, as HostTensor::cast.
RowsPtr cast_rows(RowsPtr rows, DType dtype);

}  // namespace meshtrain
