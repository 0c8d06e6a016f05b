// The lines of a text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace meshtrain {

struct TextLine {
  std::string_view text;
  int64_t number = 0;  // from 1
};

// Returns the lines that are not empty, without LF or CRLF.
inline std::vector<TextLine> text_lines(std::string_view text) {
  std::vector<TextLine> lines;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (!line.empty()) {
      lines.push_back({line, number});
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace meshtrain
