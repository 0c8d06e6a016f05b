#include "tensor/read_error.h"

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace meshtrain {

InputFile open_input(const std::string& path, const char* missing_code, const char* refused_code,
                     InputFile::Links links) {
  try {
    return InputFile(path, links);
  } catch (const FileError& error) {
    ConfigError problem(error.error_number() == 0 ? refused_code : missing_code, {}, error.what());
    if (error.error_number() == ENOENT || error.error_number() == ENOTDIR) {
      const std::vector<std::string> names = similar_files(path, 3);
      if (!names.empty()) {
        problem.help(fmt::format("nearest files in that folder: {}", join(names, ", ")));
      } else {
        problem.help("there is no such folder, or it is empty");
      }
    }
    throw problem;
  }
}

void MemoryReader::read(std::byte* to, size_t num_bytes) {
  MESHTRAIN_CHECK(num_bytes <= rest_.size(), "{} of {} bytes", num_bytes, rest_.size());
  if (num_bytes > 0) {
    std::memcpy(to, rest_.data(), num_bytes);
    rest_ = rest_.subspan(num_bytes);
  }
}

void FileReader::read(std::byte* to, size_t num_bytes) {
  MESHTRAIN_CHECK(num_bytes <= remaining(), "{} of {} bytes", num_bytes, remaining());
  file_->read_at(offset_, to, num_bytes);
  offset_ += num_bytes;
}

std::string hex_bytes(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    out += fmt::format("{}{:02x}", out.empty() ? "" : " ", static_cast<unsigned>(byte));
  }
  return out;
}

}  // namespace meshtrain
