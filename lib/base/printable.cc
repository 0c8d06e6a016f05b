#include "base/printable.h"

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

}  // namespace meshtrain
