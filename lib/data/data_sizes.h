// Sizes of vocabularies and numbers of classes, for expressions (config/data_sizes.h).
#pragma once

#include "config/data_sizes.h"
#include "data/learned.h"

namespace meshtrain {

// Reads the training data; images are not decoded. Throws ConfigError E3xx as read_source().
// What is learned is of the rows that train: without data.split's others and the part `held_out`
// (ReadLimits).
DataSizes read_data_sizes(const DataConfig& data, double held_out);
// The same of what was learned from the training data; classes only where they have names.
DataSizes data_sizes_of(const ConfigObject& train, const LearnedData& learned);

}  // namespace meshtrain
