#include "exec/shard_map.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace meshtrain {

ShardMap::ShardMap(const MeshPart& part, const Sharding& sharding, const Shape& global, DType dtype)
    : local_(local_shape(global, sharding, part.mesh())),
      item_size_(static_cast<int64_t>(dtype_size(dtype))) {
  MESHTRAIN_CHECK(sharding.partial == 0, "shards of a partial value");
  shard_bytes_ = num_elements(local_) * item_size_;
  global_strides_ = row_major_strides(global);
  for (int64_t& stride : global_strides_)
    stride *= item_size_;
  const AxisMask axes = sharding.used_axes();
  const int64_t num_shards = part.num_shards(axes);
  int64_t end_row = 0;
  for (int64_t p = 0; p < num_shards; ++p) {
    const std::vector<int64_t> start =
        local_start(global, sharding, part.mesh(), part.device_of(axes, p));
    int64_t byte = 0;
    for (size_t d = 0; d < start.size(); ++d)
      byte += start[d] * global_strides_[d];
    starts_.push_back(byte);
    const int64_t row = start.empty() ? 0 : start[0];
    first_row_ = p == 0 ? row : std::min(first_row_, row);
    end_row = std::max(end_row, row + (local_.empty() ? 1 : local_[0]));
  }
  num_rows_ = end_row - first_row_;
  row_bytes_ = global.empty() ? item_size_ : global_strides_[0];
  is_whole_ = true;
  for (int64_t p = 0; p < num_shards; ++p) {
    int64_t& start = starts_[static_cast<size_t>(p)];
    start -= local_rows_offset();
    is_whole_ = is_whole_ && start == p * shard_bytes_;
  }
  for (size_t d = 1; d < local_.size(); ++d)
    is_whole_ = is_whole_ && local_[d] == global[d];
}

template <class Move>
void ShardMap::for_each_run(Move&& move) const {
  if (shard_bytes_ == 0)
    return;
  const int64_t run = local_.empty() ? item_size_ : local_.back() * item_size_;
  const int64_t rows = shard_bytes_ / run;
  for (size_t p = 0; p < starts_.size(); ++p) {
    int64_t in_shards = static_cast<int64_t>(p) * shard_bytes_;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t in_rows = starts_[p];
      int64_t rest = row;
      for (size_t d = local_.empty() ? 0 : local_.size() - 1; d-- > 0;) {
        in_rows += rest % local_[d] * global_strides_[d];
        rest /= local_[d];
      }
      move(in_rows, in_shards, run);
      in_shards += run;
    }
  }
}

void ShardMap::scatter(const std::byte* local_rows, std::byte* shards) const {
  if (is_whole_) {
    std::memcpy(shards, local_rows, static_cast<size_t>(local_rows_bytes()));
    return;
  }
  for_each_run([&](int64_t in_rows, int64_t in_shards, int64_t bytes) {
    std::memcpy(shards + in_shards, local_rows + in_rows, static_cast<size_t>(bytes));
  });
}

void ShardMap::gather(const std::byte* shards, std::byte* local_rows) const {
  if (is_whole_) {
    std::memcpy(local_rows, shards, static_cast<size_t>(local_rows_bytes()));
    return;
  }
  for_each_run([&](int64_t in_rows, int64_t in_shards, int64_t bytes) {
    std::memcpy(local_rows + in_rows, shards + in_shards, static_cast<size_t>(bytes));
  });
}

HostTensor gather_whole(const MeshPart& part, const Sharding& sharding, const Shape& global,
                        DType dtype, const std::byte* shards, ProcessGroup* group) {
  HostTensor whole(dtype, global);
  const ShardMap own(part, sharding, global, dtype);
  if ((sharding.used_axes() & part.crossing()) == 0) {
    own.gather(shards, whole.bytes() + own.local_rows_offset());
    return whole;
  }
  MESHTRAIN_CHECK(group != nullptr && group->size() == part.processes());
  // Among processes with equal shards, the first one sends them.
  const auto gives = [&](const MeshPart& of) {
    return of.holder(of.device(0), sharding.used_axes(), 0) == of.rank();
  };
  std::string_view mine;
  if (gives(part))
    mine = {reinterpret_cast<const char*>(shards), static_cast<size_t>(own.total_bytes())};
  const std::vector<std::string> all = group->all_gather(mine);
  for (int rank = 0; rank < part.processes(); ++rank) {
    const MeshPart of = part.of(rank);
    if (!gives(of))
      continue;
    const ShardMap map(of, sharding, global, dtype);
    MESHTRAIN_CHECK(static_cast<int64_t>(all[static_cast<size_t>(rank)].size()) ==
                    map.total_bytes());
    map.gather(reinterpret_cast<const std::byte*>(all[static_cast<size_t>(rank)].data()),
               whole.bytes() + map.local_rows_offset());
  }
  return whole;
}

}  // namespace meshtrain
