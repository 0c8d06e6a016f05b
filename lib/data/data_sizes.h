// Sizes of vocabularies and numbers of classes, for expressions (config/data_sizes.h).
#pragma once

#include "config/data_sizes.h"
#include "data/learned.h"

namespace meshtrain {

// Reads the training data; images are not decoded. Throws ConfigError E3xx as read_source().
DataSizes read_data_sizes(const ConfigObject& train, const std::string& base_dir);
// The same of what was learned from the training data; classes only where they have names.
DataSizes data_sizes_of(const ConfigObject& train, const LearnedData& learned);

}  // namespace meshtrain
