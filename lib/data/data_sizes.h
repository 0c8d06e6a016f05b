// Sizes of vocabularies and numbers of classes, for expressions (config/data_sizes.h).
#pragma once

#include "config/data_sizes.h"

namespace meshtrain {

// Reads the training data; images are not decoded. Throws ConfigError E3xx as read_source().
DataSizes read_data_sizes(const ConfigObject& train, const std::string& base_dir);

}  // namespace meshtrain
