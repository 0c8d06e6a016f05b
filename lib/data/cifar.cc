#include "data/cifar.h"

#include <algorithm>
#include <cstring>

#include "base/parse_number.h"
#include "base/text.h"
#include "data/gunzip.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr int64_t kImageSide = 32;
constexpr int64_t kPlane = kImageSide * kImageSide;
constexpr int64_t kChannels = 3;
constexpr size_t kTarBlock = 512;  // tar's
constexpr uint64_t kMaxMember = uint64_t{1} << 30;

// The members of a tar archive, one after the other (POSIX ustar; the names here are short).
class TarReader {
 public:
  explicit TarReader(const InputFile& file) : path_(file.path()), bytes_(file, "E306") {}

  // Goes to the next member; false at the end.
  bool next() {
    skip(rest_);
    std::array<char, kTarBlock> header;
    const size_t found = bytes_.read(reinterpret_cast<std::byte*>(header.data()), kTarBlock);
    if (found == 0 || std::all_of(header.begin(), header.end(), [](char c) { return c == 0; })) {
      return false;
    }
    if (found < kTarBlock || std::string_view(header.data() + 257, 5) != "ustar") {
      read_error("E306", path_, "no tar archive, or a damaged one");
    }
    name_ = std::string(header.data(), strnlen(header.data(), 100));
    const std::string_view size = trim(std::string_view(header.data() + 124, 11));
    size_ = parse_number<uint64_t>(size, 8).value_or(kMaxMember + 1);
    if (size_ > kMaxMember) {
      read_error("E306", path_, "the archive is damaged: a member of `{}` bytes", size);
    }
    rest_ = (size_ + kTarBlock - 1) / kTarBlock * kTarBlock;
    return true;
  }

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }

  // The next `num_bytes` of the member.
  void read(std::byte* to, size_t num_bytes) {
    if (bytes_.read(to, num_bytes) != num_bytes) {
      read_error("E306", path_, "the archive ends within `{}`: truncated?", name_);
    }
    rest_ -= num_bytes;
  }

 private:
  void skip(uint64_t num_bytes) {
    std::vector<std::byte> buffer(size_t{1} << 16);
    for (; num_bytes > 0; num_bytes = rest_) {
      read(buffer.data(), static_cast<size_t>(std::min<uint64_t>(num_bytes, buffer.size())));
    }
  }

  std::string path_;
  GunzipBytes bytes_;
  std::string name_;
  uint64_t size_ = 0;
  uint64_t rest_ = 0;  // of the member with its padding
};

struct Member {
  std::vector<std::byte> records;
  bool is_found = false;
};

std::vector<Member> read_members(const std::string& path, const std::vector<std::string>& names,
                                 int64_t record_bytes) {
  const InputFile file = open_input(path, "E300", "E300");
  TarReader tar(file);
  std::vector<Member> members(names.size());
  size_t missing = names.size();
  while (missing > 0 && tar.next()) {
    const auto found = std::find(names.begin(), names.end(), tar.name());
    if (found == names.end()) {
      continue;
    }
    Member& member = members[static_cast<size_t>(found - names.begin())];
    if (member.is_found || tar.size() == 0 ||
        tar.size() % static_cast<uint64_t>(record_bytes) != 0) {
      read_error("E306", path, "`{}` has {} bytes, records of {} were expected", tar.name(),
                 format_thousands(static_cast<int64_t>(tar.size())), record_bytes);
    }
    // Chunk by chunk: memory is taken for bytes that are there.
    while (member.records.size() < tar.size()) {
      const size_t done = member.records.size();
      const size_t chunk = std::min<size_t>(tar.size() - done, size_t{1} << 22);
      member.records.resize(done + chunk);
      tar.read(member.records.data() + done, chunk);
    }
    member.is_found = true;
    --missing;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!members[i].is_found) {
      read_error("E306", path, "the archive has no member `{}`", names[i]);
    }
  }
  return members;
}

}  // namespace

CifarImages read_cifar(const std::string& path, const std::vector<std::string>& members,
                       int64_t label_bytes, int64_t label) {
  const int64_t record_bytes = label_bytes + kChannels * kPlane;
  const std::vector<Member> found = read_members(path, members, record_bytes);
  int64_t samples = 0;
  for (const Member& member : found) {
    samples += static_cast<int64_t>(member.records.size()) / record_bytes;
  }
  CifarImages out{HostTensor(DType::kUInt8, {samples, kImageSide, kImageSide, kChannels}),
                  HostTensor(DType::kUInt8, {samples, 1})};
  uint8_t* image = out.images.data<uint8_t>();
  uint8_t* to_label = out.labels.data<uint8_t>();
  for (const Member& member : found) {
    const auto* record = reinterpret_cast<const uint8_t*>(member.records.data());
    const uint8_t* const end = record + member.records.size();
    for (; record != end; record += record_bytes) {
      *to_label++ = record[label];
      const uint8_t* const planes = record + label_bytes;
      for (int64_t pixel = 0; pixel < kPlane; ++pixel) {
        for (int64_t c = 0; c < kChannels; ++c) {
          *image++ = planes[c * kPlane + pixel];
        }
      }
    }
  }
  return out;
}

}  // namespace meshtrain
