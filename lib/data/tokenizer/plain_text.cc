#include "data/tokenizer/plain_text.h"

#include "base/utf8.h"

namespace meshtrain {

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string replace_all(std::string text, const Replacement& by) {
  size_t at = text.find(by.first);
  if (at == std::string::npos) {
    return text;
  }
  std::string out;
  size_t used = 0;
  for (; at != std::string::npos; at = text.find(by.first, used)) {
    out.append(text, used, at - used).append(by.second);
    used = at + by.first.size();
  }
  return out.append(text, used);
}

size_t white_space_at_begin(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = utf8_length(text, at);
    if (!is_white_space(code_point(text.substr(at, length)))) {
      break;
    }
    at += length;
  }
  return at;
}

size_t white_space_at_end(std::string_view text) {
  size_t at = text.size();
  while (at > 0) {
    size_t begin = at - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    if (!is_white_space(code_point(text.substr(begin, at - begin)))) {
      break;
    }
    at = begin;
  }
  return text.size() - at;
}

}  // namespace meshtrain
