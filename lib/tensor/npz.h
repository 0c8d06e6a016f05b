// NumPy's .npz files: zip archives of .npy members, read and written through libzip.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/named_tensor.h"

namespace meshtrain {

class ZipReader;

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
  // Throws ConfigError E306 for an unknown name or damaged member, E301..E305 as read_npy.
  HostTensor read(std::string_view name);

 private:
  std::string path_;
  std::vector<std::string> names_;
  std::unique_ptr<ZipReader> archive_;
};

// All arrays, in the archive's order.
std::vector<NamedTensor> read_npz(const std::string& path);

// Replaces `path` whole or not at all; members are stored, not deflated, and carry no time, so that
// equal tensors give equal files. bfloat16 is widened to float32. Throws FileError (exit 74).
void write_npz(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace meshtrain
