// Column transforms with a vocabulary: StringLookup, IntegerLookup and TextVectorization.
#pragma once

#include "data/column_transform.h"

namespace meshtrain {

// Null for other classes.
std::unique_ptr<ColumnTransform> make_column_lookup(const ConfigObject& config);

}  // namespace meshtrain
