// Checks of the numbers in a dataset.
//
// Arrays in memory, and those of up to kCheckedAhead bytes in files, are checked before training,
// block by block. Larger arrays, and rows that are computed on each read, are checked whenever rows
// are read: each function returns the rows to use from then on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "data/rows.h"

namespace meshtrain {

constexpr int64_t kCheckedAhead = int64_t{4} << 30;

// Returns whether the checks below read all of `rows` at once.
bool is_checked_ahead(const Rows& rows);

struct LabelRange {
  int64_t num_classes = 0;              // kUnknownDim: not known
  std::optional<int64_t> ignored = {};  // no class, but allowed
};

// Labels that are no class: ConfigError E312 for the first one, with the number of all such.
RowsPtr check_label_range(RowsPtr labels, const LabelRange& range, const std::string& name,
                          const SourceLoc& loc);

// Labels outside [0, 1], which `loss` requires: ConfigError E312 for the first one, with the number
// of all such. NaN is left to check_finite().
RowsPtr check_yes_no_range(RowsPtr labels, const std::string& loss, const std::string& name,
                           const SourceLoc& loc);

// Ids that are no row of `layer`, an Embedding, which cuts fractions off: ConfigError E314 for the
// first one, with the number of all such.
RowsPtr check_id_range(RowsPtr ids, int64_t num_rows, const std::string& layer,
                       const std::string& name, const SourceLoc& loc);

// NaN and infinity, and float64 that float32 cannot hold where the model computes in that:
// ConfigError E315 for the first one; `owner` is the dataset's description, `sample` the word for a
// row.
RowsPtr check_finite(RowsPtr rows, bool is_for_float64, const std::string& name,
                     const std::string& owner, const SourceLoc& loc, const char* sample = "sample");

// uint64 that int64, in which the model gets such arrays, cannot hold: ConfigError E303 for the
// first one, with the number of all such. Other rows are returned as they are.
RowsPtr check_fits_int64(RowsPtr rows, const std::string& name, const std::string& owner,
                         const SourceLoc& loc);

// Index of the first NaN or infinity, -1 when all are finite. About memory speed.
int64_t first_nonfinite(const HostTensor& tensor);

}  // namespace meshtrain
