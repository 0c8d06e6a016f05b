// Values of the columns of a CSV file: ids of texts, and rows of arrays.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash_index.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// The texts of a column and their ids.
class CsvCategories {
 public:
  // An open one takes up further texts.
  CsvCategories(std::vector<std::string> texts, bool is_open);

  // -1 for a text that is not there.
  int find(std::string_view text) const;
  // The same; an open one takes the text up.
  int id(std::string_view text);
  bool is_open() const { return is_open_; }
  const std::vector<std::string>& texts() const { return texts_; }
  // Sorts the texts behind the first `kept`, as numbers where all are; returns the new id of each
  // old one. No ids after it.
  std::vector<int> sort(size_t kept, char decimal);

 private:
  int add(std::string text);

  bool is_open_;
  HashIndex index_;
  std::vector<std::string> texts_;
};

// Rows of one array, in blocks, so that they need not move as they become more.
class CsvBlocks {
 public:
  CsvBlocks(DType dtype, size_t columns);

  DType dtype() const { return dtype_; }
  void add_row();
  // An element of the last row.
  template <class T>
  T& at(size_t column) {
    return reinterpret_cast<T*>(row_)[column];
  }
  // (rows,) or (rows, columns). A block is freed once it is copied, so that rows are not
  // duplicated.
  HostTensor finish(bool is_vector);

 private:
  DType dtype_;
  size_t columns_, row_bytes_, rows_per_block_;
  size_t rows_ = 0;
  std::byte* row_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

// What stands in the place of a column: `write` puts `width` numbers for the value of a row.
struct ColumnWriter {
  int64_t width = 1;
  std::function<void(int64_t row, double value, double* out)> write;
};
// Returns `table` (rows,) or (rows, columns) with its columns replaced: (rows, all widths).
HostTensor expand_columns(const HostTensor& table, const std::vector<ColumnWriter>& writers);

// Returns the mean of these rows of a column without NaN: NaN when all are, 0 of no rows.
double mean_of_column(const HostTensor& table, int64_t column, std::span<const int64_t> rows);

}  // namespace meshtrain
