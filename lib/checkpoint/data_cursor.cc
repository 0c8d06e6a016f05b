#include "checkpoint/data_cursor.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/hash.h"

namespace meshtrain {
namespace {

// The checksum of a larger array covers this many bytes: the first and last rows and evenly spread
// rows between. It does not depend on whether the array is in memory or in a file.
constexpr size_t kHashedBytes = size_t{64} << 20;

std::vector<int64_t> hashed_rows(const Rows& rows) {
  const auto most = static_cast<int64_t>(kHashedBytes / std::max<size_t>(1, rows.row_bytes()));
  const int64_t count = std::min(rows.size(), std::max<int64_t>(2, most));
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) {
    order.push_back(count == 1 ? 0
                               : static_cast<int64_t>(static_cast<__int128>(i) * (rows.size() - 1) /
                                                      (count - 1)));
  }
  return order;
}

uint64_t hash_of(const Rows& rows) {
  if (rows.tensor() != nullptr && rows.tensor()->num_bytes() <= kHashedBytes) {
    return hash_bytes(rows.tensor()->bytes(), rows.tensor()->num_bytes());
  }
  const std::vector<int64_t> order = hashed_rows(rows);
  std::vector<std::byte> bytes(order.size() * rows.row_bytes());
  rows.read(order, bytes.data());
  return hash_bytes(bytes.data(), bytes.size());
}

}  // namespace

DataCursor data_cursor(const Dataset& train, const Config& config) {
  uint64_t hash = hash_mix(0, static_cast<uint64_t>(train.num_samples));
  const auto add = [&](const Rows& rows) {
    hash = hash_mix(hash,
                    hash_text(std::string(dtype_name(rows.dtype())) + shape_string(rows.shape())));
    hash = hash_mix(hash, hash_of(rows));
  };
  for (const auto* arrays : {&train.inputs, &train.targets}) {
    for (const Dataset::Array& array : *arrays) {
      add(*array.rows);
    }
  }
  if (train.sample_weight) {
    add(*train.sample_weight);
  }
  return {.data = hex64(hash),
          .description = train.description,
          .num_samples = train.num_samples,
          .batch_size = config.fit.batch_size,
          .steps_per_epoch = config.fit.steps_per_epoch,
          .shuffle = config.data.shuffle,
          .remainder = std::string(word_of(config.data.remainder.value)),
          .seed = config.seed};
}

std::vector<CursorChange> cursor_changes(const TrainState& state, const DataCursor& now) {
  const DataCursor& was = state.cursor;
  const bool in_epoch = state.position.batch > 0;
  const bool by_steps = was.steps_per_epoch > 0 || now.steps_per_epoch > 0;
  std::vector<CursorChange> out;
  const auto compare = [&](const char* key, std::string before, std::string after) {
    if (before != after) {
      out.push_back({key, std::move(before), std::move(after)});
    }
  };
  compare("data.train", fmt::format("{} samples {}", was.num_samples, was.data),
          fmt::format("{} samples {}", now.num_samples, now.data));
  compare("seed", std::to_string(was.seed), std::to_string(now.seed));
  if (in_epoch || by_steps) {
    compare("fit.batch_size", std::to_string(was.batch_size), std::to_string(now.batch_size));
    compare("fit.steps_per_epoch", std::to_string(was.steps_per_epoch),
            std::to_string(now.steps_per_epoch));
    compare("data.remainder", was.remainder, now.remainder);
  }
  if (in_epoch) {
    compare("data.shuffle", was.shuffle ? "true" : "false", now.shuffle ? "true" : "false");
  }
  return out;
}

}  // namespace meshtrain
