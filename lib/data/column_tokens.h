// The column transform Tokenizer: texts as ids of a tokenizer, padded to one length.
#pragma once

#include "data/column_transform.h"

namespace meshtrain {

// Null for other classes. The tokenizer's folder is relative to `base_dir`.
std::unique_ptr<ColumnTransform> make_column_tokens(const ConfigObject& config,
                                                    const std::string& base_dir);

}  // namespace meshtrain
