#include "backend/cuda/cache.h"

#include <filesystem>
#include <span>

#include "base/checksum.h"
#include "base/file.h"

namespace meshtrain::cuda {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr size_t kChecksumLength = 32;

std::string checksum_of(std::string_view text) {
  return checksum128(std::as_bytes(std::span(text)));
}

}  // namespace

std::string Cache::file(std::string_view kind, std::string_view key) const {
  return fmt::format("{}/{}-{}", folder_, kind, checksum_of(key));
}

// A file holds the checksum of the rest, then the data.
std::optional<std::string> Cache::find(std::string_view kind, std::string_view key) const {
  if (!keeps())
    return std::nullopt;
  try {
    std::string data = read_file(file(kind, key), kMostBytes);
    if (data.size() < kChecksumLength)
      return std::nullopt;
    const std::string checksum = data.substr(0, kChecksumLength);
    data.erase(0, kChecksumLength);
    if (checksum_of(data) != checksum)
      return std::nullopt;
    return data;
  } catch (const FileError&) {
    return std::nullopt;
  }
}

void Cache::store(std::string_view kind, std::string_view key, std::string_view data) const {
  if (!keeps())
    return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  try {
    write_file_atomic(file(kind, key), checksum_of(data) + std::string(data));
  } catch (const FileError&) {
    // Found again next time.
  }
}

}  // namespace meshtrain::cuda
