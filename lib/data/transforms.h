// What happens to arrays between the file and the model, on the host, whenever rows are read.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace meshtrain {

// The array as the transform makes it, row by row when it is read. Rescaling: x scale + offset in
// float32, float64 stays float64. Reshape: another shape of a sample. Throws ConfigError E304 where
// the shape does not fit.
RowsPtr apply_transform(const ConfigObject& transform, RowsPtr rows, const std::string& name);

// Labels (n,) or (n, 1) as float32 (n, num_classes). Labels out of range are E312.
RowsPtr one_hot(RowsPtr labels, int64_t num_classes, const std::string& name, const SourceLoc& loc);

// data.transform on all inputs, label.one_hot on all targets.
void transform_dataset(Dataset& dataset, const DataConfig& data);

}  // namespace meshtrain
