// NaN and infinity in what a checkpoint holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/format.h"

namespace meshtrain {

struct NonFinite {
  int64_t nan = 0, infinite = 0;

  bool any() const { return nan + infinite > 0; }
  NonFinite& operator+=(const NonFinite& other);
};

// Counts NaN and infinity in some elements of a weight or of optimizer state. Metrics count as
// finite, since they are no reason to reject a model.
NonFinite non_finite(const CheckpointTensor& tensor, std::span<const std::byte> bytes);

std::string in_words(const NonFinite& count);  // "3 NaN and 1 infinite"

}  // namespace meshtrain
