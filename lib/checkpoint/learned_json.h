// Values learned from the training data, as JSON text that ends with its own checksum.
#pragma once

#include <string>
#include <string_view>

#include "data/learned.h"

namespace meshtrain {

// Returns the text. Names that are no UTF-8 are written as hexadecimal digits.
std::string learned_text(const LearnedData& learned);

// True when `text` has the key that marks such a text, whole or damaged.
bool is_learned_text(std::string_view text);

// Throws ConfigError (exit 6): E402 for any other text, E403 for a wrong checksum, E408 for
// the format of a newer program. `path` is for messages.
LearnedPtr parse_learned(std::string_view text, const std::string& path);

}  // namespace meshtrain
