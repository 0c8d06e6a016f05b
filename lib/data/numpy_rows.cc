#include "data/numpy_rows.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "data/file_rows.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

StoredArray stored_array(const NpyLayout& layout, const std::string& name) {
  if (layout.shape.empty()) {
    read_error("E304", name, "a single number has no dimension of samples");
  }
  StoredArray array{layout.dtype, layout.shape, {}};
  if (layout.big_endian || layout.dtype == DType::kBool) {
    array.convert = [layout](std::byte* data, size_t num_bytes) {
      layout.convert(data, num_bytes);
    };
  }
  return array;
}

// The checksum of a stored member, of which its header is a part.
StoredChecksum checksum_of(const WatchedFile& file, const NpzMember& member,
                           const std::string& name) {
  std::vector<std::byte> header(*member.data_offset - *member.offset);
  file.read_at(*member.offset, header.data(), header.size());
  const auto before = static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size()));
  return {before, member.crc, [path = file.file().path(), name] {
            read_error("E306", path, "member `{}.npy` is damaged: its checksum differs", name);
          }};
}

// A deflated member of an archive that is open as long as it is read.
class NpzStream final : public ByteReader {
 public:
  NpzStream(const std::string& path, const std::string& name)
      : reader_(path), bytes_(reader_.open(name)) {}
  uint64_t remaining() const override { return bytes_->remaining(); }
  void read(std::byte* to, size_t num_bytes) override { bytes_->read(to, num_bytes); }
  void finish() override { bytes_->finish(); }

 private:
  NpzReader reader_;
  std::unique_ptr<ByteReader> bytes_;
};

}  // namespace

RowsPtr npy_rows(const std::string& path, const SourceLoc& loc) {
  auto file = std::make_shared<const WatchedFile>(open_input(path, "E300", "E300"), loc);
  FileReader bytes(file->file());
  const NpyLayout layout = read_npy_layout(bytes, path);
  if (layout.fortran_order) {
    return make_rows(read_npy(path));
  }
  const uint64_t offset = file->file().size() - layout.num_bytes;
  return stored_rows(std::move(file), stored_array(layout, path), offset);
}

NpzFile::NpzFile(const std::string& path, const SourceLoc& loc)
    : path_(path),
      file_(std::make_shared<const WatchedFile>(open_input(path, "E300", "E300"), loc)),
      reader_(std::make_unique<NpzReader>(path)) {}
NpzFile::~NpzFile() = default;
NpzFile::NpzFile(NpzFile&&) noexcept = default;

bool NpzFile::has(const std::string& name) const {
  return reader_->has(name);
}

RowsPtr NpzFile::rows(const std::string& name) const {
  const NpzMember member = reader_->member(name);
  if (member.layout.fortran_order) {
    return make_rows(reader_->read(name));
  }
  StoredArray array = stored_array(member.layout, fmt::format("{}[{}]", path_, name));
  if (!member.data_offset) {
    return stream_rows(std::move(array),
                       [path = path_, name] { return std::make_unique<NpzStream>(path, name); });
  }
  return stored_rows(file_, std::move(array), *member.data_offset,
                     checksum_of(*file_, member, name));
}

}  // namespace meshtrain
