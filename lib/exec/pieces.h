// Between a whole (global) tensor in row-major order and its pieces, which lie one after the other.
#pragma once

#include <cstddef>

#include "mesh/sharding.h"
#include "tensor/dtype.h"

namespace meshtrain {

// Where and how large the pieces of a tensor are. The sharding must be settled.
class PieceMap {
 public:
  PieceMap() = default;
  PieceMap(const DeviceMesh& mesh, const Sharding& sharding, const Shape& global, DType dtype);

  // Whether the pieces together lie as the whole tensor does.
  bool is_whole() const { return is_whole_; }
  int64_t piece_bytes() const { return piece_bytes_; }
  int64_t total_bytes() const { return piece_bytes_ * static_cast<int64_t>(starts_.size()); }
  int64_t global_bytes() const { return global_bytes_; }
  void scatter(const std::byte* whole, std::byte* pieces) const;
  void gather(const std::byte* pieces, std::byte* whole) const;

 private:
  template <class Move>
  void for_each_run(Move&& move) const;

  std::vector<int64_t> starts_;  // byte of the whole where each piece begins
  Shape local_;
  std::vector<int64_t> global_strides_;  // in bytes
  int64_t item_size_ = 1, piece_bytes_ = 0, global_bytes_ = 0;
  bool is_whole_ = false;
};

}  // namespace meshtrain
