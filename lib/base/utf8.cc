#include "base/utf8.h"

namespace meshtrain {

size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u;
  };
  const auto continues = [&](size_t k) { return (byte(k) & 0xC0u) == 0x80u; };
  const unsigned first = byte(i);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first <= 0xDF) {
    return continues(i + 1) ? 2 : 0;
  }
  if (first >= 0xE0 && first <= 0xEF) {
    const bool in_range =
        !(first == 0xE0 && byte(i + 1) < 0xA0) && !(first == 0xED && byte(i + 1) > 0x9F);
    return in_range && continues(i + 1) && continues(i + 2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool in_range =
        !(first == 0xF0 && byte(i + 1) < 0x90) && !(first == 0xF4 && byte(i + 1) > 0x8F);
    return in_range && continues(i + 1) && continues(i + 2) && continues(i + 3) ? 4 : 0;
  }
  return 0;
}

char32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  const size_t length = character.size();
  char32_t value = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    value = value << 6 | (static_cast<unsigned char>(character[i]) & 0x3Fu);
  }
  return value;
}

void append_utf8(char32_t character, std::string& text) {
  const auto put = [&](char32_t bits) { text += static_cast<char>(bits); };
  const auto put_rest = [&](int shift) { put(0x80u | (character >> shift & 0x3Fu)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0u | character >> 6);
    put_rest(0);
  } else if (character < 0x10000) {
    put(0xE0u | character >> 12);
    put_rest(6);
    put_rest(0);
  } else {
    put(0xF0u | character >> 18);
    put_rest(12);
    put_rest(6);
    put_rest(0);
  }
}

}  // namespace meshtrain
