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

  void read(std::span<const int64_t> order, std::byte* to) const override {
    const size_t bytes = row_bytes();
    for (const int64_t row : order) {
      MESHTRAIN_CHECK(row >= 0 && row < size(), "row {} of {}", row, size());
      std::memcpy(to, tensor_.bytes() + static_cast<size_t>(row) * bytes, bytes);
      to += bytes;
    }
  }

 private:
  HostTensor tensor_;
};

}  // namespace

size_t Rows::row_bytes() const {
  size_t bytes = dtype_size(dtype());
  for (size_t d = 1; d < shape().size(); ++d) {
    bytes *= static_cast<size_t>(shape()[d]);
  }
  return bytes;
}

HostTensor Rows::read_range(int64_t begin, int64_t end) const {
  MESHTRAIN_CHECK(0 <= begin && begin <= end && end <= size());
  std::vector<int64_t> order(static_cast<size_t>(end - begin));
  std::iota(order.begin(), order.end(), begin);
  Shape part = shape();
  part[0] = end - begin;
  HostTensor out(dtype(), part);
  read(order, out.bytes());
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

RowsPtr make_rows(HostTensor tensor) {
  return std::make_shared<TensorRows>(std::move(tensor));
}

}  // namespace meshtrain
