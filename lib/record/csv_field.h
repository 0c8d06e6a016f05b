// A field of a table with separators, as RFC 4180 and Python's csv module in its dialect "excel"
// write it.
#pragma once

#include <string>
#include <string_view>

namespace meshtrain {

// Puts it into quotes where it has a separator, a quote or the end of a line.
inline std::string csv_field(std::string_view text, char separator = ',') {
  if (text.find_first_of("\"\r\n") == std::string_view::npos &&
      text.find(separator) == std::string_view::npos) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    out.append(c == '"' ? 2 : 1, c);
  }
  return out + '"';
}

}  // namespace meshtrain
