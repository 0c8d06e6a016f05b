// NumPy's .npz files: zip archives of .npy members, read and written through libzip.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/host_tensor.h"
#include "tensor/npy.h"

namespace meshtrain {

class ZipReader;

// An array of an archive.
struct NpzMember {
  NpyLayout layout;
  // Offsets of the .npy member and of its elements in the file, when it is stored, not deflated.
  std::optional<uint64_t> offset, data_offset;
  uint32_t crc = 0;  // CRC-32 of the .npy member
};

// An open archive. Names are those of the arrays, without ".npy"; they are never used as paths.
class NpzReader {
 public:
  // Checks the directory: members other than .npy, names that lead out of a folder, duplicates,
  // encryption, sizes that the bytes present cannot hold. Throws ConfigError (exit 3) E300 or E306.
  explicit NpzReader(const std::string& path);
  ~NpzReader();
  NpzReader(const NpzReader&) = delete;
  NpzReader& operator=(const NpzReader&) = delete;

  const std::vector<std::string>& names() const { return names_; }  // in the archive's order
  bool has(std::string_view name) const;
  // Returns type, shape and offsets of an array. Throws as read().
  NpzMember member(std::string_view name);
  // The elements of an array, read incrementally while the archive is open.
  std::unique_ptr<ByteReader> open(std::string_view name);
  // Throws ConfigError E306 for an unknown name or damaged member, E301..E305 as read_npy.
  HostTensor read(std::string_view name);

 private:
  std::string member_name(std::string_view name) const;  // throws where there is none

  std::string path_;
  std::vector<std::string> names_;
  std::unique_ptr<ZipReader> archive_;
};

// All arrays, in the archive's order.
std::vector<NamedTensor> read_npz(const std::string& path);

// Replaces `path` atomically. Members are stored, not deflated, and have no time, so that equal
// tensors give equal files. bfloat16 is widened to float32. Throws FileError (exit 74).
void write_npz(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace meshtrain
