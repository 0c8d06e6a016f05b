#include "base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>

namespace meshtrain {

struct Checksum128::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Checksum128::Checksum128() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(state_->xxh.get());
}
Checksum128::~Checksum128() = default;
Checksum128::Checksum128(Checksum128&&) noexcept = default;
Checksum128& Checksum128::operator=(Checksum128&&) noexcept = default;

void Checksum128::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

std::string Checksum128::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh.get());
  return hex64(hash.high64) + hex64(hash.low64);
}

std::string checksum128(std::span<const std::byte> bytes) {
  Checksum128 sum;
  sum.update(bytes);
  return sum.hex();
}

uint32_t crc32c(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table = {};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);  // the polynomial, reflected
      }
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  }
  return ~crc;
}

std::string hex64(uint64_t value) {
  return fmt::format("{:016x}", value);
}

}  // namespace meshtrain
