#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshtrain {

std::string printable(std::string_view text) {
  constexpr size_t kMax = 40;
  std::string out(text.substr(0, kMax));
  for (char& c : out) {
    c = c >= 32 && c < 127 ? c : '?';
  }
  return text.size() > kMax ? out + "..." : out;
}

std::string without_controls(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
  std::replace_if(text.begin(), text.end(), is_control, '?');
  return text;
}

std::string escaped_controls(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else if ((byte < 32 && byte != '\t' && byte != '\n') || byte == 127) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace meshtrain
