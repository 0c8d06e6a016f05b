// One array of a dataset, read some rows at a time: data need not fit into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

// Rows are samples, along dimension 0; there is at least one dimension. Every read of a row returns
// the same bytes; rows that differ between passes over the data are others in each (in_pass).
struct RowCounts;

class Rows {
 public:
  virtual ~Rows() = default;
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;  // (samples, ...)

  // Copies rows `order` to `to` (order.size() x row bytes). Thread-safe. Throws FileError or
  // ConfigError (E305, E321, E322) for unreadable rows.
  virtual void read(std::span<const int64_t> order, std::byte* to) const = 0;

  // Returns the whole array when it is in memory, else null.
  virtual const HostTensor* tensor() const { return nullptr; }

  // The cost of reading, for the choice of a cache (data.cache).
  enum class Cost {
    kMemory,    // copying the bytes
    kFile,      // reading the bytes from a file
    kInOrder,   // low in the order of the rows, high in any other: a compressed file
    kComputed,  // every read computes the row: a decoded image
  };
  virtual Cost cost() const { return Cost::kComputed; }

  // Returns these rows as pass `pass` over the data (from 0) sees them, or null when every pass
  // sees the same. These are those of pass 0.
  virtual std::shared_ptr<const Rows> in_pass(int64_t) const { return nullptr; }

  // Where samples are windows over rows: the rows, and how many of samples [begin, end) hold each.
  // Nothing for other rows.
  virtual std::optional<RowCounts> row_counts(int64_t begin, int64_t end) const;

  int64_t size() const { return shape()[0]; }
  size_t row_bytes() const;
  // Rows [begin, end) as a tensor.
  HostTensor read_range(int64_t begin, int64_t end) const;
  // Calls `function(first row, rows as a tensor)` for all rows in order, some megabytes at a time,
  // or once when they are in memory.
  void for_each_block(const std::function<void(int64_t, const HostTensor&)>& function) const;

 protected:
  void check_row(int64_t row) const;  // a broken invariant when there is no such row
};

using RowsPtr = std::shared_ptr<const Rows>;

struct RowCounts {
  RowsPtr rows;                 // (rows, ...) of samples (samples, steps, ...)
  std::vector<int64_t> counts;  // of each row
};

// Returns the rows of a tensor in memory, which must have at least one dimension.
RowsPtr make_rows(HostTensor tensor);
// Returns rows [begin, end) of `rows`.
RowsPtr slice_rows(RowsPtr rows, int64_t begin, int64_t end);
// Returns the rows with these numbers, in this order. Copies an array in memory.
RowsPtr select_rows(RowsPtr rows, std::vector<int64_t> order);
// Concatenates rows of the same type and sample shape.
RowsPtr concat_rows(std::vector<RowsPtr> parts);
// Changes the shape of a sample; the number of elements must be the same.
RowsPtr reshape_rows(RowsPtr rows, const Shape& sample);
// Converts every element, as HostTensor::cast.
RowsPtr cast_rows(RowsPtr rows, DType dtype);

}  // namespace meshtrain
