// The identity of the training samples and of their order, by which a checkpoint knows its place in
// them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/format.h"
#include "config/config.h"
#include "data/dataset.h"

namespace meshtrain {

// Returns the identity of the training samples and of their order. The checksum of an array above
// 64 MiB covers that many bytes in evenly spread rows, so that it needs no pass over the data. It
// depends on the bytes alone: a copy at another path is the same data.
DataCursor data_cursor(const Dataset& train, const Config& config);

// Returns the changes that invalidate the checkpoint's position in the data; empty when it is
// valid. More settings matter within an epoch than at its beginning.
struct CursorChange {
  std::string key;  // "fit.batch_size"
  std::string before, after;
};
std::vector<CursorChange> cursor_changes(const TrainState& was, const DataCursor& now);

}  // namespace meshtrain
