// Text from strangers' files, for messages on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace meshtrain {

// `text` with what a terminal should not see replaced by "?", at most 40 characters.
std::string printable(std::string_view text);

// All of a text that may be UTF-8, without control characters.
std::string without_controls(std::string text);

// All of a text for a terminal, with control characters as they are written in YAML ("\x1b"), but
// for tabs and line breaks.
std::string escaped_controls(std::string_view text);

}  // namespace meshtrain
