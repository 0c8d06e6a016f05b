// Safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes without gaps.
//
// Format: github.com/huggingface/safetensors, README "Format". The reader trusts nothing: it checks
// every rule of the format before it allocates memory. Each message names the file and both sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

using StringMap = std::map<std::string, std::string>;

// An open file: the header checked, the data read on demand with pread.
class SafetensorsReader {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    uint64_t begin = 0;  // in the file
    uint64_t num_bytes = 0;
  };

  // Throws ConfigError (exit 6): E404 not there, E405 the rule that the file breaks, E406 a
  // symbolic link, no regular file, or a name that is not accepted.
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the data
  const StringMap& metadata() const { return metadata_; }
  const Entry* find(std::string_view name) const;  // null when there is none

  HostTensor read(const Entry& entry) const;
  // `num_bytes` from byte `offset` of the tensor, for chunks of large ones.
  void read(const Entry& entry, uint64_t offset, std::byte* to, size_t num_bytes) const;

 private:
  InputFile file_;
  std::vector<Entry> entries_;
  StringMap metadata_;
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of the data
  StringMap metadata;
};
// Throws as the reader, and E404 where the metadata have a checksum (with_checksum()) that is not
// that of the tensors.
SafetensorsFile read_safetensors(const std::string& path);

// Whether the metadata have a checksum.
bool has_checksum(const StringMap& metadata);
// Metadata with the checksum of names, types, shapes and values, in whatever order they stand.
StringMap with_checksum(std::span<const NamedTensor> tensors, StringMap metadata = {});

// A tensor to write, borrowed.
struct TensorView {
  std::string name;
  DType dtype;
  Shape shape;
  std::span<const std::byte> bytes;
};

// The beginning of a file, up to the first byte of data (at a multiple of 64), and the order of the
// data: indices into `tensors`.
struct SafetensorsHead {
  std::string bytes;
  std::vector<size_t> order;
};
SafetensorsHead make_safetensors_head(std::span<const TensorView> tensors,
                                      const StringMap& metadata);

// Replaces `path` atomically. Tensors with larger elements precede others, so that every tensor is
// aligned; otherwise the order is kept. Data begin at a multiple of 64 bytes. Equal arguments give
// equal files. Throws FileError (exit 74); InternalError for a name given twice.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const StringMap& metadata = {});
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const StringMap& metadata = {});

}  // namespace meshtrain
