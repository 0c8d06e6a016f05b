// Steps on texts that need no tables of Unicode. All texts must be UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace meshtrain {

using Replacement = std::pair<std::string, std::string>;  // each occurrence, and what it becomes

std::string replace_all(std::string text, const Replacement& by);

bool is_white_space(char32_t c);  // Unicode's White_Space
// Bytes of white space at the begin and at the end of a text.
size_t white_space_at_begin(std::string_view text);
size_t white_space_at_end(std::string_view text);

}  // namespace meshtrain
