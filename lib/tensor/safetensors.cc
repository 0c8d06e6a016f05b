#include "tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/checksum.h"
#include "base/json.h"
#include "base/text.h"
#include "tensor/read_error.h"
#include "tensor/safetensors_header.h"

namespace meshtrain {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kLengthSize = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // as the format's own library has it
constexpr size_t kDataAlignment = 64;
constexpr const char* kChecksum = "meshtrain_xxh3_128";

std::string checksum_of(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> by_name;
  for (const NamedTensor& entry : tensors) {
    by_name.push_back(&entry);
  }
  std::sort(by_name.begin(), by_name.end(),
            [](const NamedTensor* a, const NamedTensor* b) { return a->name < b->name; });
  Checksum128 checksum;
  for (const NamedTensor* entry : by_name) {
    const HostTensor& tensor = entry->tensor;
    const std::string kind = fmt::format("{} {} {}\n", entry->name, dtype_name(tensor.dtype()),
                                         shape_string(tensor.shape()));
    checksum.update(std::as_bytes(std::span(kind)));
    checksum.update({tensor.bytes(), tensor.num_bytes()});
  }
  return checksum.hex();
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path)
    : file_(open_input(path, "E404", "E406", InputFile::Links::kRefuse)) {
  const uint64_t size = file_.size();
  if (size < kLengthSize) {
    read_error("E405", path, "the file has {} bytes, a safetensors file at least 10: truncated?",
               size);
  }
  uint64_t length = 0;
  file_.read_at(0, reinterpret_cast<std::byte*>(&length), sizeof(length));
  if (length > size - kLengthSize) {
    read_error("E405", path,
               "the header says it has {} bytes, the file has {} in all: truncated, or not a "
               "safetensors file?",
               length, size);
  }
  if (length > kMaxHeader) {
    read_error("E405", path, "a header of {} bytes; at most {} are read", length, kMaxHeader);
  }
  std::string text(length, '\0');
  file_.read_at(kLengthSize, reinterpret_cast<std::byte*>(text.data()), length);
  const uint64_t data_begin = kLengthSize + length;
  entries_ = parse_safetensors_header(text, size - data_begin, path, &metadata_);
  for (Entry& entry : entries_) {
    entry.begin += data_begin;
  }
}

const SafetensorsReader::Entry* SafetensorsReader::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

HostTensor SafetensorsReader::read(const Entry& entry) const {
  HostTensor tensor(entry.dtype, entry.shape);
  read(entry, 0, tensor.bytes(), tensor.num_bytes());
  if (entry.dtype == DType::kBool) {  // nothing but 0 and 1 may get into a computation
    std::transform(tensor.bytes(), tensor.bytes() + tensor.num_bytes(), tensor.bytes(),
                   [](std::byte b) { return std::byte{b != std::byte{0}}; });
  }
  return tensor;
}

void SafetensorsReader::read(const Entry& entry, uint64_t offset, std::byte* to,
                             size_t num_bytes) const {
  MESHTRAIN_CHECK(offset <= entry.num_bytes && num_bytes <= entry.num_bytes - offset,
                  "bytes {} + {} of {}", offset, num_bytes, entry.num_bytes);
  try {
    file_.read_at(entry.begin + offset, to, num_bytes);
  } catch (const FileError& error) {
    throw ConfigError("E405", {}, error.what());
  }
}

SafetensorsFile read_safetensors(const std::string& path) {
  const SafetensorsReader reader(path);
  SafetensorsFile file;
  file.metadata = reader.metadata();
  for (const SafetensorsReader::Entry& entry : reader.entries()) {
    file.tensors.push_back({entry.name, reader.read(entry)});
  }
  const auto written = file.metadata.find(kChecksum);
  if (written != file.metadata.end() && written->second != checksum_of(file.tensors)) {
    throw ConfigError("E404", {},
                      fmt::format("`{}`: its checksum does not match: the file was changed", path))
        .help(fmt::format("where that was on purpose, leave `{}` out of the file's metadata",
                          kChecksum));
  }
  return file;
}

bool has_checksum(const StringMap& metadata) {
  return metadata.contains(kChecksum);
}

StringMap with_checksum(std::span<const NamedTensor> tensors, StringMap metadata) {
  metadata[kChecksum] = checksum_of(tensors);
  return metadata;
}

SafetensorsHead make_safetensors_head(std::span<const TensorView> tensors,
                                      const StringMap& metadata) {
  SafetensorsHead out;
  std::set<std::string_view> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& view = tensors[i];
    MESHTRAIN_CHECK(view.name != "__metadata__" && names.insert(view.name).second,
                    "tensor `{}` twice in a file", view.name);
    MESHTRAIN_CHECK(
        view.bytes.size() == static_cast<size_t>(num_elements(view.shape)) * dtype_size(view.dtype),
        "tensor `{}` has {} bytes for {}", view.name, view.bytes.size(), shape_string(view.shape));
    out.order.push_back(i);
  }
  std::stable_sort(out.order.begin(), out.order.end(), [&](size_t a, size_t b) {
    return dtype_size(tensors[a].dtype) > dtype_size(tensors[b].dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  uint64_t offset = 0;
  for (const size_t i : out.order) {
    const TensorView& view = tensors[i];
    // emplace_back without a search: operator[] of an ordered object is linear in its size.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        view.name, nlohmann::ordered_json{{"dtype", safetensors_dtype(view.dtype)},
                                          {"shape", view.shape},
                                          {"data_offsets", {offset, offset + view.bytes.size()}}});
    offset += view.bytes.size();
  }
  std::string text = json_text(header);
  text.append((kDataAlignment - (kLengthSize + text.size()) % kDataAlignment) % kDataAlignment,
              ' ');
  const uint64_t length = text.size();
  out.bytes.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  out.bytes += text;
  return out;
}

void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const StringMap& metadata) {
  const SafetensorsHead head = make_safetensors_head(tensors, metadata);
  std::vector<std::span<const std::byte>> chunks = {std::as_bytes(std::span(head.bytes))};
  for (const size_t i : head.order) {
    chunks.push_back(tensors[i].bytes);
  }
  write_file_atomic(path, std::span<const std::span<const std::byte>>(chunks));
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const StringMap& metadata) {
  std::vector<TensorView> views;
  for (const NamedTensor& entry : tensors) {
    views.push_back({entry.name,
                     entry.tensor.dtype(),
                     entry.tensor.shape(),
                     {entry.tensor.bytes(), entry.tensor.num_bytes()}});
  }
  write_safetensors(path, std::span<const TensorView>(views), metadata);
}

}  // namespace meshtrain
