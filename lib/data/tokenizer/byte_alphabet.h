// The printable characters that stand for bytes in tokens of a byte-level BPE: the 188 printable
// ones of Latin-1 are themselves, the other 68 bytes are U+0100 and following, in their order.
#pragma once

#include <array>
#include <cstdint>

namespace meshtrain {

inline const std::array<char32_t, 256>& byte_alphabet() {
  static const std::array<char32_t, 256> alphabet = [] {
    std::array<char32_t, 256> out{};
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      out[byte] = is_printable ? byte : next++;
    }
    return out;
  }();
  return alphabet;
}

}  // namespace meshtrain
