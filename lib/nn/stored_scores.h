// Attention layers that store their scores: memory that grows with the square of the steps.
#pragma once

#include <optional>
#include <string>

#include "nn/model.h"

namespace meshtrain {

struct StoredScores {
  Shape shape;  // with kUnknownDim for the batch
  std::string reason, help;
};

// What a call of an attention layer stores for each pair of a query and a key. Returns nothing
// for attention as one op (ir/ops/attention.cc), which stores a number for each query and head.
std::optional<StoredScores> stored_scores(const Model& model, size_t call);

}  // namespace meshtrain
