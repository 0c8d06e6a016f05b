#include "tensor/npz.h"

#include <algorithm>

#include "base/printable.h"
#include "base/text.h"
#include "tensor/npy.h"
#include "tensor/zip.h"

namespace meshtrain {
namespace {

constexpr ZipCodes kCodes = {"E300", "E306"};

}  // namespace

NpzReader::NpzReader(const std::string& path)
    : path_(path), archive_(std::make_unique<ZipReader>(path, kCodes)) {
  for (const std::string& name : archive_->names()) {
    if (!ends_with(name, ".npy") || name.size() == 4) {
      read_error(kCodes.damaged, path, "member `{}` is not an array (.npy)", printable(name));
    }
    names_.push_back(name.substr(0, name.size() - 4));
  }
}

NpzReader::~NpzReader() = default;

bool NpzReader::has(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

std::string NpzReader::member_name(std::string_view name) const {
  if (!has(name)) {
    const std::vector<std::string> shown = nearest_names(name, names_, 8);
    read_error(kCodes.damaged, path_, "no array `{}` in the archive; it holds: {}{}", name,
               names_.empty() ? "nothing" : join(shown, ", "),
               shown.size() < names_.size() ? ", ..." : "");
  }
  return fmt::format("{}.npy", name);
}

HostTensor NpzReader::read(std::string_view name) {
  return archive_->read(member_name(name), [&](ByteReader& bytes) {
    return read_npy(bytes, fmt::format("{}[{}]", path_, name));
  });
}

NpzMember NpzReader::member(std::string_view name) {
  const std::string own_name = member_name(name);
  archive_->check_claim(own_name);
  const std::unique_ptr<ByteReader> bytes = archive_->open(own_name);
  NpzMember member;
  member.layout = read_npy_layout(*bytes, fmt::format("{}[{}]", path_, name));
  member.crc = archive_->crc(own_name);
  member.offset = archive_->stored_offset(own_name);
  if (member.offset) {
    member.data_offset = *member.offset + archive_->size(own_name) - member.layout.num_bytes;
  }
  return member;
}

std::unique_ptr<ByteReader> NpzReader::open(std::string_view name) {
  std::unique_ptr<ByteReader> bytes = archive_->open(member_name(name));
  read_npy_layout(*bytes, fmt::format("{}[{}]", path_, name));
  return bytes;
}

std::vector<NamedTensor> read_npz(const std::string& path) {
  NpzReader reader(path);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : reader.names()) {
    tensors.push_back({name, reader.read(name)});
  }
  return tensors;
}

void write_npz(const std::string& path, std::span<const NamedTensor> tensors) {
  std::vector<HostTensor> widened;
  std::vector<std::string> headers;
  std::vector<ZipMember> members;
  widened.reserve(tensors.size());
  headers.reserve(tensors.size());  // members borrow the texts
  for (const NamedTensor& entry : tensors) {
    const HostTensor* tensor = &entry.tensor;
    if (tensor->dtype() == DType::kBFloat16) {
      tensor = &widened.emplace_back(tensor->cast(DType::kFloat32));
    }
    headers.push_back(npy_header(tensor->dtype(), tensor->shape()));
    members.push_back(
        {entry.name + ".npy",
         {std::as_bytes(std::span(headers.back())), {tensor->bytes(), tensor->num_bytes()}}});
  }
  write_zip(path, members);
}

}  // namespace meshtrain
