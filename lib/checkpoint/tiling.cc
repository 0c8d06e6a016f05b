#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "base/printable.h"
#include "checkpoint/format.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

// Elements of `shape`, or nothing when they are more than any file holds.
std::optional<uint64_t> count_elements(const Shape& shape) {
  uint64_t count = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(size), &count) ||
        count > (uint64_t{1} << 53)) {
      return std::nullopt;
    }
  }
  return count;
}

bool overlap(const CheckpointShard& a, const CheckpointShard& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] + a.shape[d] <= b.offset[d] || b.offset[d] + b.shape[d] <= a.offset[d]) {
      return false;
    }
  }
  return true;
}

// The dimension along which the shards begin at the most places.
size_t most_divided(const CheckpointTensor& tensor) {
  size_t best = 0, most = 0;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    std::set<int64_t> places;
    for (const CheckpointShard& shard : tensor.shards) {
      places.insert(shard.offset[d]);
    }
    if (places.size() > most) {
      best = d;
      most = places.size();
    }
  }
  return best;
}

// In order of one dimension a shard can only overlap those that begin before it ends: of a grid of
// n shards each is compared with its own row, not with all.
bool any_overlap(const CheckpointTensor& tensor) {
  const std::vector<CheckpointShard>& shards = tensor.shards;
  if (tensor.shape.empty()) {
    return shards.size() > 1;
  }
  const size_t d = most_divided(tensor);
  std::vector<size_t> order(shards.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return shards[a].offset[d] < shards[b].offset[d]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const CheckpointShard& shard = shards[order[i]];
    for (size_t j = i + 1; j < order.size(); ++j) {
      const CheckpointShard& next = shards[order[j]];
      if (next.offset[d] >= shard.offset[d] + shard.shape[d]) {
        break;
      }
      if (overlap(shard, next)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void check_tiling(const CheckpointTensor& tensor, const std::string& path) {
  const std::optional<uint64_t> whole = count_elements(tensor.shape);
  if (!whole) {
    read_error("E407", path, "`{}` has more elements than any file: {}", printable(tensor.path),
               shape_string(tensor.shape));
  }
  uint64_t covered = 0;
  for (const CheckpointShard& shard : tensor.shards) {
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (shard.offset[d] + shard.shape[d] > tensor.shape[d]) {
        read_error("E407", path, "a shard of `{}` ends at {} of {} along dimension {}",
                   printable(tensor.path), shard.offset[d] + shard.shape[d], tensor.shape[d], d);
      }
    }
    const uint64_t elements = *count_elements(shard.shape);  // inside of `whole`
    if (shard.end - shard.begin != elements * dtype_size(tensor.dtype)) {
      read_error("E407", path, "a shard of `{}` has {} bytes for {} elements",
                 printable(tensor.path), shard.end - shard.begin, elements);
    }
    covered += elements;
  }
  if (*whole > 0 && any_overlap(tensor)) {
    read_error("E407", path, "two shards of `{}` overlap", printable(tensor.path));
  }
  if (covered != *whole) {
    read_error("E407", path, "{} of the {} elements of `{}` are in no file", *whole - covered,
               *whole, printable(tensor.path));
  }
}

}  // namespace meshtrain
