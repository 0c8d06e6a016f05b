// UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshtrain {

// What editors of Windows put in front of a text (U+FEFF).
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Bytes of the character at `text[i]`, 0 when there is none (overlong forms, surrogates and values
// above U+10FFFF included).
size_t utf8_length(std::string_view text, size_t i);

// The number of a character, given as its bytes.
char32_t code_point(std::string_view character);

// Appends the bytes of a character, which must be one (no surrogate, at most U+10FFFF).
void append_utf8(char32_t character, std::string& text);

}  // namespace meshtrain
