// ShardMap: from a tensor in row-major order to the shards that one process holds, and back. The
// shards are stored one after the other.
#pragma once

#include <cstddef>

#include "comm/process_group.h"
#include "mesh/mesh_part.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Where the shards of a tensor begin, and their size. The sharding must not be partial. The map
// covers only the local rows: those (along dimension 0) that some shard of the process has.
class ShardMap {
 public:
  ShardMap() = default;
  ShardMap(const MeshPart& part, const Sharding& sharding, const Shape& global, DType dtype);

  // True when the shards, one after the other, are the local rows.
  bool is_whole() const { return is_whole_; }
  int64_t shard_bytes() const { return shard_bytes_; }
  int64_t total_bytes() const { return shard_bytes_ * static_cast<int64_t>(starts_.size()); }
  int64_t first_row() const { return first_row_; }
  int64_t num_rows() const { return num_rows_; }  // 1 of a scalar
  int64_t local_rows_bytes() const { return num_rows_ * row_bytes_; }
  int64_t local_rows_offset() const { return first_row_ * row_bytes_; }  // in the tensor, in bytes
  void scatter(const std::byte* local_rows, std::byte* shards) const;
  // Leaves elements of the local rows that no shard has unchanged.
  void gather(const std::byte* shards, std::byte* local_rows) const;

 private:
  template <class Move>
  void for_each_run(Move&& move) const;

  std::vector<int64_t> starts_;  // byte of the local rows where each shard begins
  Shape local_;
  std::vector<int64_t> global_strides_;  // in bytes
  int64_t item_size_ = 1, shard_bytes_ = 0;
  int64_t first_row_ = 0, num_rows_ = 1, row_bytes_ = 0;
  bool is_whole_ = false;
};

// Returns the whole tensor, gathered from the shards of all processes. Collective where the tensor
// is split over processes; elsewhere `group` may be null.
HostTensor gather_whole(const MeshPart& part, const Sharding& sharding, const Shape& global,
                        DType dtype, const std::byte* shards, ProcessGroup* group);

}  // namespace meshtrain
