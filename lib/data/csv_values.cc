#include "data/csv_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/hash.h"
#include "data/csv_text.h"

namespace meshtrain {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

}  // namespace

CsvCategories::CsvCategories(std::vector<std::string> texts, bool is_open) : is_open_(is_open) {
  for (std::string& text : texts) {
    add(std::move(text));
  }
}

int CsvCategories::find(std::string_view text) const {
  const int found =
      index_.find(hash_text(text), [&](int id) { return texts_[static_cast<size_t>(id)] == text; });
  return found != HashIndex::kAbsent ? found : -1;
}

int CsvCategories::id(std::string_view text) {
  const int found = find(text);
  return found < 0 && is_open_ ? add(std::string(text)) : found;
}

int CsvCategories::add(std::string text) {
  const int id = static_cast<int>(texts_.size());
  index_.add(hash_text(text), id);
  texts_.push_back(std::move(text));
  return id;
}

std::vector<int> CsvCategories::sort(size_t kept, char decimal) {
  std::vector<double> numbers(texts_.size());
  bool are_numbers = true;
  for (size_t i = kept; i < texts_.size(); ++i) {
    const std::optional<double> number = parse_decimal(texts_[i], decimal);
    are_numbers = are_numbers && number;
    numbers[i] = number.value_or(0);
  }
  std::vector<size_t> order(texts_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
            [&](size_t a, size_t b) {
              return are_numbers && numbers[a] != numbers[b] ? numbers[a] < numbers[b]
                                                             : texts_[a] < texts_[b];
            });
  std::vector<int> new_ids(order.size());
  std::vector<std::string> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    new_ids[order[i]] = static_cast<int>(i);
    sorted.push_back(std::move(texts_[order[i]]));
  }
  texts_ = std::move(sorted);
  return new_ids;
}

CsvBlocks::CsvBlocks(DType dtype, size_t columns)
    : dtype_(dtype),
      columns_(columns),
      row_bytes_(columns * dtype_size(dtype)),
      rows_per_block_(std::max<size_t>(1, kBlockBytes / row_bytes_)) {}

void CsvBlocks::add_row() {
  const size_t row = rows_++ % rows_per_block_;
  if (row == 0) {
    blocks_.emplace_back(new std::byte[rows_per_block_ * row_bytes_]);
  }
  row_ = blocks_.back().get() + row * row_bytes_;
}

HostTensor CsvBlocks::finish(bool is_vector) {
  Shape shape = {static_cast<int64_t>(rows_)};
  if (!is_vector) {
    shape.push_back(static_cast<int64_t>(columns_));
  }
  HostTensor tensor(dtype_, shape);
  const size_t block_bytes = rows_per_block_ * row_bytes_;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const size_t begin = i * block_bytes;
    std::memcpy(tensor.bytes() + begin, blocks_[i].get(),
                std::min(block_bytes, tensor.num_bytes() - begin));
    blocks_[i].reset();
  }
  return tensor;
}

HostTensor expand_columns(const HostTensor& table, const std::vector<ColumnWriter>& writers) {
  const int64_t rows = table.shape()[0];
  const int64_t width =
      std::accumulate(writers.begin(), writers.end(), int64_t{0},
                      [](int64_t sum, const ColumnWriter& each) { return sum + each.width; });
  HostTensor out(table.dtype(), {rows, width});
  std::vector<double> numbers(static_cast<size_t>(width));
  int64_t from = 0;
  for (int64_t row = 0; row < rows; ++row) {
    double* to = numbers.data();
    for (const ColumnWriter& writer : writers) {
      writer.write(row, table.at(from++), to);
      to += writer.width;
    }
    for (int64_t i = 0; i < width; ++i) {
      out.set(row * width + i, numbers[static_cast<size_t>(i)]);
    }
  }
  return out;
}

double mean_of_column(const HostTensor& table, int64_t column, std::span<const int64_t> rows) {
  const int64_t width = table.shape().size() == 1 ? 1 : table.shape()[1];
  double sum = 0;
  int64_t count = 0;
  for (const int64_t row : rows) {
    const double value = table.at(row * width + column);
    sum += std::isnan(value) ? 0 : value;
    count += std::isnan(value) ? 0 : 1;
  }
  return count == 0 && !rows.empty() ? std::nan("")
                                     : sum / static_cast<double>(std::max<int64_t>(1, count));
}

}  // namespace meshtrain
