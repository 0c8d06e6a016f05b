// What tests of rows share.
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "data/rows.h"
#include "source_config.h"
#include "support/temp_folder.h"

namespace meshtrain::test {

using Cost = Rows::Cost;

inline HostTensor pattern(DType dtype, const Shape& shape) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, static_cast<double>((i * 37 + 11) % 251));
  }
  return tensor;
}

inline std::vector<std::byte> read(const Rows& rows, const std::vector<int64_t>& order) {
  std::vector<std::byte> bytes(order.size() * rows.row_bytes());
  rows.read(order, bytes.data());
  return bytes;
}

inline const std::vector<int64_t> kOrders[] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {9, 0, 4, 4, 5, 6, 2}, {3}, {}, {8, 9, 0, 1}};

// That `rows` are those of `tensor`, in any order.
inline void check_same(const Rows& rows, const HostTensor& tensor) {
  CHECK(rows.dtype() == tensor.dtype());
  REQUIRE(rows.shape() == tensor.shape());
  const RowsPtr expected = make_rows(tensor.clone());
  for (const std::vector<int64_t>& order : kOrders) {
    CHECK(read(rows, order) == read(*expected, order));
  }
  CHECK_THROWS_AS(read(rows, {10}), InternalError);
  CHECK_THROWS_AS(read(rows, {-1}), InternalError);
}

// Rows that are computed: counts how often each was.
class CountedRows final : public Rows {
 public:
  CountedRows(HostTensor tensor, Cost cost)
      : rows_(make_rows(std::move(tensor))), cost_(cost), counts(static_cast<size_t>(size())) {}
  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return rows_->shape(); }
  Cost cost() const override { return cost_; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    rows_->read(order, to);
    for (const int64_t row : order) {
      ++counts[static_cast<size_t>(row)];
    }
  }

 private:
  RowsPtr rows_;
  Cost cost_;

 public:
  mutable std::vector<int> counts;
};

}  // namespace meshtrain::test
