// What Python writes in parentheses and YAML in brackets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace meshtrain {

// The YAML list that Python's tuple of numbers is here: "[28, 28, 1]" of "(28,28,1)".
std::optional<std::string> list_of_tuple(std::string_view text);

}  // namespace meshtrain
