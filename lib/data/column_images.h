// The column transforms Image and Mask: files that a column names, decoded when they are read.
#pragma once

#include "data/column_transform.h"

namespace meshtrain {

// Null for other classes. The folder of the files is relative to `base_dir`.
std::unique_ptr<ColumnTransform> make_column_images(const ConfigObject& config,
                                                    const std::string& base_dir);

}  // namespace meshtrain
