// Transforms of arrays between the file and the model, on the host, whenever rows are read.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace meshtrain {

// Returns the transformed array, computed row by row on reading. Rescaling: x scale + offset in
// float32 (float64 for float64). Reshape: another shape of a sample. Throws ConfigError E304 when
// the shape does not fit.
RowsPtr apply_transform(const ConfigObject& transform, RowsPtr rows, const std::string& name);

// Labels (n,), (n, 1) or of pixels (n, h, w, 1) as float32 (n, ..., num_classes). Labels out of
// range are E312.
RowsPtr one_hot(RowsPtr labels, int64_t num_classes, const std::string& name, const SourceLoc& loc);

// data.transform on all inputs, or by MaskedLMMaskGenerator on the whole dataset; label.one_hot on
// all targets.
void transform_dataset(Dataset& dataset, const DataConfig& data);

}  // namespace meshtrain
