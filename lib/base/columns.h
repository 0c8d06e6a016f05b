// Text in columns on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

// Columns that a text takes: characters of UTF-8 without the escape sequences.
size_t visible_width(std::string_view text);

// A table without lines: columns as wide as their widest text, two blanks apart, no blanks at the
// ends of lines. Rows may have different numbers of cells; columns whose index is in `right` are
// aligned to the right.
std::string aligned_columns(const std::vector<std::vector<std::string>>& rows,
                            const std::vector<size_t>& right = {});

}  // namespace meshtrain
