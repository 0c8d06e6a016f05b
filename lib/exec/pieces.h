// Between a tensor in row-major order and the pieces of it that a process holds, which lie one
// after the other.
#pragma once

#include <cstddef>

#include "comm/process_group.h"
#include "mesh/mesh_part.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Where and how large the pieces of a tensor are. The sharding must be settled. Of the tensor only
// the rows (along dimension 0) that some piece of the process has are seen: its slab.
class PieceMap {
 public:
  PieceMap() = default;
  PieceMap(const MeshPart& part, const Sharding& sharding, const Shape& global, DType dtype);

  // Whether the pieces together lie as the slab does.
  bool is_whole() const { return is_whole_; }
  int64_t piece_bytes() const { return piece_bytes_; }
  int64_t total_bytes() const { return piece_bytes_ * static_cast<int64_t>(starts_.size()); }
  int64_t first_row() const { return first_row_; }
  int64_t num_rows() const { return num_rows_; }  // 1 of a scalar
  int64_t slab_bytes() const { return num_rows_ * row_bytes_; }
  int64_t slab_offset() const { return first_row_ * row_bytes_; }  // in the tensor, in bytes
  void scatter(const std::byte* slab, std::byte* pieces) const;
  // What no piece of the process has stays as it is.
  void gather(const std::byte* pieces, std::byte* slab) const;

 private:
  template <class Move>
  void for_each_run(Move&& move) const;

  std::vector<int64_t> starts_;  // byte of the slab where each piece begins
  Shape local_;
  std::vector<int64_t> global_strides_;  // in bytes
  int64_t item_size_ = 1, piece_bytes_ = 0;
  int64_t first_row_ = 0, num_rows_ = 1, row_bytes_ = 0;
  bool is_whole_ = false;
};

// The whole tensor from this process's pieces of it and those of the others. Collective where the
// tensor is split over processes; `group` may be null where it is not.
HostTensor gather_whole(const MeshPart& part, const Sharding& sharding, const Shape& global,
                        DType dtype, const std::byte* pieces, ProcessGroup* group);

}  // namespace meshtrain
