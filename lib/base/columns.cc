#include "base/columns.h"

#include <algorithm>

namespace meshtrain {

size_t visible_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0u) != 0x80u) {
      ++width;  // not a continuation byte of UTF-8
    }
  }
  return width;
}

std::string aligned_columns(const std::vector<std::vector<std::string>>& rows,
                            const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], visible_width(row[c]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blank(widths[c] - visible_width(row[c]), ' ');
      const bool is_right = std::find(right.begin(), right.end(), c) != right.end();
      line += (is_right ? blank + row[c] : row[c] + blank) + "  ";
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace meshtrain
