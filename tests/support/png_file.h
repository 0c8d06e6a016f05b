// Grey images as PNG files, for tests that read them.
#pragma once

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace meshtrain::test {

inline std::string big_endian(uint32_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += static_cast<char>(number >> shift);
  }
  return text;
}

inline std::string png_chunk(const std::string& name, const std::string& body) {
  const std::string text = name + body;
  const auto* const bytes = reinterpret_cast<const Bytef*>(text.data());
  return big_endian(static_cast<uint32_t>(body.size())) + text +
         big_endian(static_cast<uint32_t>(crc32(0, bytes, static_cast<uInt>(text.size()))));
}

// Writes a grey image of 28 x 28 bytes and the folders around it.
inline void write_png(const std::string& path, const uint8_t* pixels) {
  std::string rows;
  for (int y = 0; y < 28; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(pixels) + 28 * y, 28);
  }
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                   reinterpret_cast<const Bytef*>(rows.data()), rows.size()) == Z_OK);
  packed.resize(size);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary)
      << "\x89PNG\r\n\x1a\n"
      << png_chunk("IHDR", big_endian(28) + big_endian(28) + std::string("\x08\0\0\0\0", 5))
      << png_chunk("IDAT", packed) << png_chunk("IEND", "");
}

}  // namespace meshtrain::test
