#include "exec/pieces.h"

#include <cstring>

namespace meshtrain {

PieceMap::PieceMap(const DeviceMesh& mesh, const Sharding& sharding, const Shape& global,
                   DType dtype)
    : local_(local_shape(global, sharding, mesh)),
      item_size_(static_cast<int64_t>(dtype_size(dtype))) {
  MESHTRAIN_CHECK(sharding.partial == 0, "pieces of a pending value");
  piece_bytes_ = num_elements(local_) * item_size_;
  global_bytes_ = num_elements(global) * item_size_;
  global_strides_ = row_major_strides(global);
  for (int64_t& stride : global_strides_)
    stride *= item_size_;
  const AxisMask axes = sharding.used_axes();
  const int64_t num_pieces = mesh.size_of(axes);
  is_whole_ = true;
  for (int64_t p = 0; p < num_pieces; ++p) {
    const std::vector<int64_t> start =
        local_start(global, sharding, mesh, device_of_piece(mesh, axes, p));
    int64_t byte = 0;
    for (size_t d = 0; d < start.size(); ++d)
      byte += start[d] * global_strides_[d];
    starts_.push_back(byte);
    is_whole_ = is_whole_ && byte == p * piece_bytes_;
  }
  for (size_t d = 1; d < local_.size(); ++d)
    is_whole_ = is_whole_ && local_[d] == global[d];
}

template <class Move>
void PieceMap::for_each_run(Move&& move) const {
  if (piece_bytes_ == 0)
    return;
  const int64_t run = local_.empty() ? item_size_ : local_.back() * item_size_;
  const int64_t rows = piece_bytes_ / run;
  for (size_t p = 0; p < starts_.size(); ++p) {
    int64_t in_pieces = static_cast<int64_t>(p) * piece_bytes_;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t in_whole = starts_[p];
      int64_t rest = row;
      for (size_t d = local_.empty() ? 0 : local_.size() - 1; d-- > 0;) {
        in_whole += rest % local_[d] * global_strides_[d];
        rest /= local_[d];
      }
      move(in_whole, in_pieces, run);
      in_pieces += run;
    }
  }
}

void PieceMap::scatter(const std::byte* whole, std::byte* pieces) const {
  if (is_whole_) {
    std::memcpy(pieces, whole, static_cast<size_t>(global_bytes_));
    return;
  }
  for_each_run([&](int64_t in_whole, int64_t in_pieces, int64_t bytes) {
    std::memcpy(pieces + in_pieces, whole + in_whole, static_cast<size_t>(bytes));
  });
}

void PieceMap::gather(const std::byte* pieces, std::byte* whole) const {
  if (is_whole_) {
    std::memcpy(whole, pieces, static_cast<size_t>(global_bytes_));
    return;
  }
  for_each_run([&](int64_t in_whole, int64_t in_pieces, int64_t bytes) {
    std::memcpy(whole + in_whole, pieces + in_pieces, static_cast<size_t>(bytes));
  });
}

}  // namespace meshtrain
