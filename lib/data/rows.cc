#include "data/rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace meshtrain {
namespace {

class TensorRows final : public Rows {
 public:
  explicit TensorRows(HostTensor tensor) : tensor_(std::move(tensor)) {
    MESHTRAIN_CHECK(!tensor_.shape().empty());
  }

  DType dtype() const override { return tensor_.dtype(); }
  const Shape& shape() const override { return tensor_.shape(); }
  const HostTensor* tensor() const override { return &tensor_; }
  Cost cost() const override { return Cost::kMemory; }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    const size_t bytes = row_bytes();
    for (const int64_t row : order) {
      check_row(row);
      std::memcpy(to, tensor_.bytes() + static_cast<size_t>(row) * bytes, bytes);
      to += bytes;
    }
  }

 private:
  HostTensor tensor_;
};

class SliceRows final : public Rows {
 public:
  SliceRows(RowsPtr rows, int64_t begin, int64_t end)
      : rows_(std::move(rows)), begin_(begin), shape_(rows_->shape()) {
    MESHTRAIN_CHECK(0 <= begin && begin <= end && end <= rows_->size(), "rows {} to {} of {}",
                    begin, end, rows_->size());
    shape_[0] = end - begin;
  }

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return rows_->cost(); }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    std::vector<int64_t> shifted(order.begin(), order.end());
    for (int64_t& row : shifted) {
      check_row(row);
      row += begin_;
    }
    rows_->read(shifted, to);
  }
  RowsPtr in_pass(int64_t pass) const override {
    RowsPtr rows = rows_->in_pass(pass);
    return rows ? std::make_shared<SliceRows>(std::move(rows), begin_, begin_ + size()) : nullptr;
  }
  std::optional<RowCounts> row_counts(int64_t begin, int64_t end) const override {
    return rows_->row_counts(begin_ + begin, begin_ + end);
  }

 private:
  RowsPtr rows_;
  int64_t begin_;
  Shape shape_;
};

class SelectRows final : public Rows {
 public:
  SelectRows(RowsPtr rows, std::vector<int64_t> order)
      : rows_(std::move(rows)), order_(std::move(order)), shape_(rows_->shape()) {
    shape_[0] = static_cast<int64_t>(order_.size());
  }

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return rows_->cost(); }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    std::vector<int64_t> selected(order.begin(), order.end());
    for (int64_t& row : selected) {
      check_row(row);
      row = order_[static_cast<size_t>(row)];
    }
    rows_->read(selected, to);
  }
  RowsPtr in_pass(int64_t pass) const override {
    RowsPtr rows = rows_->in_pass(pass);
    return rows ? std::make_shared<SelectRows>(std::move(rows), order_) : nullptr;
  }

 private:
  RowsPtr rows_;
  std::vector<int64_t> order_;
  Shape shape_;
};

class ConcatRows final : public Rows {
 public:
  explicit ConcatRows(std::vector<RowsPtr> parts)
      : parts_(std::move(parts)), shape_(parts_.at(0)->shape()) {
    for (const RowsPtr& part : parts_) {
      MESHTRAIN_CHECK(part->dtype() == dtype() && part->row_bytes() == parts_[0]->row_bytes());
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
    }
    shape_[0] = ends_.back();
  }

  DType dtype() const override { return parts_[0]->dtype(); }
  const Shape& shape() const override { return shape_; }
  // The cost of the most expensive part.
  Cost cost() const override {
    Cost most = Cost::kMemory;
    for (const RowsPtr& part : parts_) {
      most = std::max(most, part->cost());
    }
    return most;
  }

  // Neighbours in `order` within one part are read together.
  void read(std::span<const int64_t> order, std::byte* to) const override {
    std::vector<int64_t> within;
    for (size_t i = 0; i < order.size(); i += within.size()) {
      check_row(order[i]);
      const auto found = std::upper_bound(ends_.begin(), ends_.end(), order[i]);
      const RowsPtr& part = parts_[static_cast<size_t>(found - ends_.begin())];
      const int64_t begin = *found - part->size();
      within.clear();
      for (size_t k = i; k < order.size() && order[k] >= begin && order[k] < *found; ++k) {
        within.push_back(order[k] - begin);
      }
      part->read(within, to + i * row_bytes());
    }
  }

 private:
  std::vector<RowsPtr> parts_;
  std::vector<int64_t> ends_;  // of each part, in rows of the whole
  Shape shape_;
};

class ReshapeRows final : public Rows {
 public:
  ReshapeRows(RowsPtr rows, Shape shape) : rows_(std::move(rows)), shape_(std::move(shape)) {
    MESHTRAIN_CHECK(row_bytes() == rows_->row_bytes());
  }

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return rows_->cost(); }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    rows_->read(order, to);
  }
  RowsPtr in_pass(int64_t pass) const override {
    RowsPtr rows = rows_->in_pass(pass);
    return rows ? std::make_shared<ReshapeRows>(std::move(rows), shape_) : nullptr;
  }

 private:
  RowsPtr rows_;
  Shape shape_;
};

class CastRows final : public Rows {
 public:
  CastRows(RowsPtr rows, DType dtype) : rows_(std::move(rows)), dtype_(dtype) {}

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return rows_->shape(); }
  Cost cost() const override { return rows_->cost(); }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    Shape part = shape();
    part[0] = static_cast<int64_t>(order.size());
    HostTensor own(rows_->dtype(), part);
    rows_->read(order, own.bytes());
    const HostTensor wanted = own.cast(dtype_);
    std::copy_n(wanted.bytes(), wanted.num_bytes(), to);
  }
  RowsPtr in_pass(int64_t pass) const override {
    RowsPtr rows = rows_->in_pass(pass);
    return rows ? std::make_shared<CastRows>(std::move(rows), dtype_) : nullptr;
  }

 private:
  RowsPtr rows_;
  DType dtype_;
};

}  // namespace

std::optional<RowCounts> Rows::row_counts(int64_t, int64_t) const {
  return std::nullopt;
}

size_t Rows::row_bytes() const {
  size_t bytes = dtype_size(dtype());
  for (size_t d = 1; d < shape().size(); ++d) {
    bytes *= static_cast<size_t>(shape()[d]);
  }
  return bytes;
}

HostTensor Rows::read_range(int64_t begin, int64_t end) const {
  MESHTRAIN_CHECK(0 <= begin && begin <= end && end <= size());
  constexpr int64_t kRowsAtOnce = 65536;  // the order of more may take more memory than the rows
  Shape part = shape();
  part[0] = end - begin;
  HostTensor out(dtype(), part);
  std::byte* to = out.bytes();
  std::vector<int64_t> order;
  for (; begin < end; begin += static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(std::min(end - begin, kRowsAtOnce)));
    std::iota(order.begin(), order.end(), begin);
    read(order, to);
    to += order.size() * row_bytes();
  }
  return out;
}

void Rows::for_each_block(const std::function<void(int64_t, const HostTensor&)>& function) const {
  if (tensor() != nullptr) {
    function(0, *tensor());
    return;
  }
  constexpr size_t kBlockBytes = size_t{4} << 20;
  const auto count =
      static_cast<int64_t>(std::max<size_t>(1, kBlockBytes / std::max<size_t>(1, row_bytes())));
  for (int64_t begin = 0; begin < size(); begin += count) {
    function(begin, read_range(begin, std::min(begin + count, size())));
  }
}

void Rows::check_row(int64_t row) const {
  MESHTRAIN_CHECK(row >= 0 && row < size(), "row {} of {}", row, size());
}

RowsPtr make_rows(HostTensor tensor) {
  return std::make_shared<TensorRows>(std::move(tensor));
}

RowsPtr slice_rows(RowsPtr rows, int64_t begin, int64_t end) {
  if (begin == 0 && end == rows->size()) {
    return rows;
  }
  return std::make_shared<SliceRows>(std::move(rows), begin, end);
}

RowsPtr select_rows(RowsPtr rows, std::vector<int64_t> order) {
  if (rows->tensor() == nullptr) {
    return std::make_shared<SelectRows>(std::move(rows), std::move(order));
  }
  Shape shape = rows->shape();
  shape[0] = static_cast<int64_t>(order.size());
  HostTensor tensor(rows->dtype(), shape);
  rows->read(order, tensor.bytes());
  return make_rows(std::move(tensor));
}

RowsPtr concat_rows(std::vector<RowsPtr> parts) {
  if (parts.size() == 1) {
    return parts[0];
  }
  return std::make_shared<ConcatRows>(std::move(parts));
}

RowsPtr reshape_rows(RowsPtr rows, const Shape& sample) {
  Shape shape = {rows->size()};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return std::make_shared<ReshapeRows>(std::move(rows), std::move(shape));
}

RowsPtr cast_rows(RowsPtr rows, DType dtype) {
  if (rows->dtype() == dtype) {
    return rows;
  }
  if (rows->tensor() != nullptr) {
    return make_rows(rows->tensor()->cast(dtype));
  }
  return std::make_shared<CastRows>(std::move(rows), dtype);
}

}  // namespace meshtrain
