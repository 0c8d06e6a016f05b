// Checksums of files: xxh3, computed while bytes are read or written; CRC-32C where a format
// requires it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace meshtrain {

// 128 bits over everything given to update(), as 32 hexadecimal digits.
class Checksum128 {
 public:
  Checksum128();
  ~Checksum128();
  Checksum128(Checksum128&&) noexcept;
  Checksum128& operator=(Checksum128&&) noexcept;

  void update(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum128(std::span<const std::byte> bytes);
// CRC-32C (Castagnoli), RFC 3720 appendix B.4. For small texts: a byte at a time.
uint32_t crc32c(std::span<const std::byte> bytes);
// 64 bits as 16 hexadecimal digits.
std::string hex64(uint64_t value);

}  // namespace meshtrain
