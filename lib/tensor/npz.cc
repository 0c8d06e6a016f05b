#include "tensor/npz.h"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/text.h"
#include "tensor/npy.h"
#include "tensor/npy_header.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxMembers = 10000;
constexpr size_t kMaxName = 512;
// Deflate cannot shrink below 1/1032: what claims more lies.
constexpr uint64_t kMaxRatio = 1032;
// A member both larger and denser than these is refused even if it is true.
constexpr uint64_t kBombBytes = uint64_t{1} << 30;
constexpr uint64_t kBombRatio = 100;
// Members larger and denser than these are read once without storing before memory is taken for
// them. Images of digits have a ratio of about 5: they are read only once.
constexpr uint64_t kTrustedBytes = uint64_t{1} << 24;
constexpr uint64_t kTrustedRatio = 8;

uint64_t little_endian(const std::byte* bytes, int width) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(width));
  return value;
}

// libzip takes memory for as many members as the end record claims; this looks at the claim first.
void check_end_record(const InputFile& file) {
  constexpr uint64_t kEndSize = 22;
  constexpr uint64_t kLocatorSize = 20;
  constexpr uint64_t kEnd64Size = 56;
  constexpr uint64_t kMemberSize = 46;  // at least, in the directory
  const std::string& path = file.path();
  const uint64_t size = file.size();
  if (size == 0) {
    read_error("E306", path, "the file is empty");
  }
  std::vector<std::byte> tail(std::min<uint64_t>(size, kEndSize + 65535 + kLocatorSize));
  const uint64_t tail_begin = size - tail.size();
  file.read_at(tail_begin, tail.data(), tail.size());
  // The end record is followed by a comment that reaches to the end of the file.
  size_t end = tail.size();
  for (size_t i = tail.size() < kEndSize ? 0 : tail.size() - kEndSize + 1; i-- > 0;) {
    if (std::memcmp(&tail[i], "PK\x05\x06", 4) == 0 &&
        i + kEndSize + little_endian(&tail[i + 20], 2) == tail.size()) {
      end = i;
      break;
    }
  }
  if (end == tail.size()) {
    read_error("E306", path, "not a zip archive, or one without its end ({} bytes): truncated?",
               format_thousands(static_cast<int64_t>(size)));
  }
  uint64_t members = little_endian(&tail[end + 10], 2);
  uint64_t directory_size = little_endian(&tail[end + 12], 4);
  uint64_t directory_begin = little_endian(&tail[end + 16], 4);
  if (end >= kLocatorSize && std::memcmp(&tail[end - kLocatorSize], "PK\x06\x07", 4) == 0) {
    const uint64_t at = little_endian(&tail[end - kLocatorSize + 8], 8);
    std::byte record[kEnd64Size];
    if (at > size || size - at < kEnd64Size) {
      read_error("E306", path, "the zip64 end record lies outside of the file");
    }
    file.read_at(at, record, kEnd64Size);
    members = little_endian(record + 32, 8);
    directory_size = little_endian(record + 40, 8);
    directory_begin = little_endian(record + 48, 8);
  }
  const uint64_t end_begin = tail_begin + end;
  if (directory_begin > end_begin || directory_size > end_begin - directory_begin) {
    read_error("E306", path, "the archive's directory lies outside of the file: truncated?");
  }
  if (members > kMaxMembers) {
    read_error("E306", path, "the archive says it has {} members; at most {} are read", members,
               kMaxMembers);
  }
  if (members * kMemberSize > directory_size) {
    read_error("E306", path, "the archive says it has {} members, its directory has room for {}",
               members, directory_size / kMemberSize);
  }
}

// The name of the array in member `name`; throws E306 for names that no array of NumPy's has.
std::string array_name(const std::string& path, std::string_view name) {
  const std::string shown = printable(name);
  if (!ends_with(name, ".npy") || name.size() == 4) {
    read_error("E306", path, "member `{}` is not an array (.npy)", shown);
  }
  name.remove_suffix(4);
  if (name.size() > kMaxName) {
    read_error("E306", path, "member `{}` has a name of {} bytes", shown, name.size());
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\';
  });
  bool leads_out = false;
  for (const std::string& part : split(name, '/')) {
    leads_out = leads_out || part.empty() || part == "." || part == "..";
  }
  if (control || leads_out) {
    read_error("E306", path, "member `{}` has a name that is not accepted", shown);
  }
  return std::string(name);
}

void check_member(const std::string& path, const zip_stat_t& stat, uint64_t file_size) {
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  const std::string name = printable(stat.name);
  if ((stat.valid & kNeeded) != kNeeded) {
    read_error("E306", path, "member `{}` has no sizes", name);
  }
  if (stat.encryption_method != ZIP_EM_NONE) {
    read_error("E306", path, "member `{}` is encrypted", name);
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    read_error("E306", path, "member `{}` is compressed by method {}; stored and deflated are read",
               name, stat.comp_method);
  }
  const bool lies = stat.comp_size > file_size ||
                    (stat.comp_method == ZIP_CM_STORE && stat.size != stat.comp_size) ||
                    stat.size / kMaxRatio > stat.comp_size + 1;
  const bool bomb = stat.size > kBombBytes && stat.size / kBombRatio > stat.comp_size;
  if (lies || bomb) {
    read_error("E306", path, "member `{}` declares {} for {} stored{}", name,
               stat.size > INT64_MAX ? "over 8 EiB" : format_bytes(static_cast<int64_t>(stat.size)),
               stat.comp_size > INT64_MAX ? "over 8 EiB"
                                          : format_bytes(static_cast<int64_t>(stat.comp_size)),
               lies ? ", which cannot be" : "");
  }
}

// One member's bytes, decompressed.
class MemberReader final : public ByteReader {
 public:
  MemberReader(zip_t* zip, const zip_stat_t& stat, const std::string& path)
      : path_(path), name_(printable(stat.name)), remaining_(stat.size) {
    file_ = zip_fopen_index(zip, stat.index, 0);
    if (file_ == nullptr) {
      read_error("E306", path_, "member `{}`: {}", name_, zip_strerror(zip));
    }
  }
  ~MemberReader() override { zip_fclose(file_); }
  MemberReader(const MemberReader&) = delete;

  uint64_t remaining() const override { return remaining_; }

  void read(std::byte* to, size_t num_bytes) override {
    MESHTRAIN_CHECK(num_bytes <= remaining_);
    while (num_bytes > 0) {
      const size_t got = read_some(to, num_bytes);
      if (got == 0) {
        read_error("E306", path_, "member `{}` ends {} bytes early", name_, remaining_);
      }
      to += got;
      num_bytes -= got;
      remaining_ -= got;
    }
  }

  // Reads on to the end; libzip compares the checksum there.
  void finish() {
    std::byte buffer[1 << 14];
    while (remaining_ > 0) {
      read(buffer, std::min<uint64_t>(remaining_, sizeof(buffer)));
    }
    if (read_some(buffer, 1) != 0) {
      read_error("E306", path_, "member `{}` is longer than it declares", name_);
    }
  }

 private:
  size_t read_some(std::byte* to, size_t num_bytes) {
    const zip_int64_t got = zip_fread(file_, to, num_bytes);
    if (got < 0) {
      read_error("E306", path_, "member `{}` is damaged: {}", name_, zip_file_strerror(file_));
    }
    return static_cast<size_t>(got);
  }

  const std::string& path_;
  std::string name_;
  zip_file_t* file_;
  uint64_t remaining_;
};

}  // namespace

struct NpzReader::Archive {
  zip_t* zip = nullptr;
  std::vector<zip_stat_t> members;  // as names_
  ~Archive() {
    if (zip != nullptr) {
      zip_discard(zip);
    }
  }
};

NpzReader::NpzReader(const std::string& path) : path_(path), archive_(new Archive) {
  const InputFile file = open_input(path, "E300", "E300");
  check_end_record(file);
  const int fd = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
  int code = 0;
  archive_->zip = fd < 0 ? nullptr : zip_fdopen(fd, ZIP_CHECKCONS, &code);
  if (archive_->zip == nullptr) {
    if (fd >= 0) {
      ::close(fd);
    }
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string text =
        code == ZIP_ER_EXISTS ? "two members have the same name" : zip_error_strerror(&error);
    zip_error_fini(&error);
    read_error("E306", path, "damaged archive: {}", text);
  }
  const zip_int64_t count = zip_get_num_entries(archive_->zip, 0);
  std::set<std::string> seen;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive_->zip, static_cast<zip_uint64_t>(i), 0, &stat) != 0 ||
        stat.name == nullptr) {
      read_error("E306", path, "member {}: {}", i, zip_strerror(archive_->zip));
    }
    names_.push_back(array_name(path, stat.name));
    if (!seen.insert(names_.back()).second) {
      read_error("E306", path, "two members are named `{}`", printable(stat.name));
    }
    check_member(path, stat, file.size());
    archive_->members.push_back(stat);
  }
}

NpzReader::~NpzReader() = default;

bool NpzReader::has(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

HostTensor NpzReader::read(std::string_view name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    const std::vector<std::string> shown = nearest_names(name, names_, 8);
    read_error("E306", path_, "no array `{}` in the archive; it holds: {}{}", name,
               names_.empty() ? "nothing" : join(shown, ", "),
               shown.size() < names_.size() ? ", ..." : "");
  }
  const zip_stat_t& stat = archive_->members[static_cast<size_t>(found - names_.begin())];
  if (stat.size > kTrustedBytes && stat.size / kTrustedRatio > stat.comp_size) {
    MemberReader(archive_->zip, stat, path_).finish();
  }
  MemberReader bytes(archive_->zip, stat, path_);
  HostTensor tensor = read_npy(bytes, fmt::format("{}[{}]", path_, name));
  bytes.finish();
  return tensor;
}

std::vector<NamedTensor> read_npz(const std::string& path) {
  NpzReader reader(path);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : reader.names()) {
    tensors.push_back({name, reader.read(name)});
  }
  return tensors;
}

namespace {

// Adds one member that borrows `header` and the tensor's bytes until the archive is closed.
bool add_member(zip_t* zip, const std::string& name, const std::string& header,
                const HostTensor& tensor) {
  zip_buffer_fragment_t fragments[2];
  fragments[0] = {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(header.data())), header.size()};
  fragments[1] = {reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(tensor.bytes())),
                  tensor.num_bytes()};
  const zip_uint64_t count = tensor.num_bytes() > 0 ? 2 : 1;
  zip_source_t* source = zip_source_buffer_fragment(zip, fragments, count, 0);
  if (source == nullptr) {
    return false;
  }
  const zip_int64_t index = zip_file_add(zip, (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return false;
  }
  constexpr zip_uint16_t kFirstDay =
      1 << 5 | 1;  // 1 January 1980, where the calendar of zip begins
  const auto at = static_cast<zip_uint64_t>(index);
  return zip_set_file_compression(zip, at, ZIP_CM_STORE, 0) == 0 &&
         zip_file_set_dostime(zip, at, 0, kFirstDay, 0) == 0;
}

}  // namespace

void write_npz(const std::string& path, std::span<const NamedTensor> tensors) {
  if (tensors.empty()) {  // libzip writes no file for an archive without members
    constexpr char kEmptyArchive[22] = {'P', 'K', 5, 6};
    return write_file_atomic(path, std::string_view(kEmptyArchive, sizeof(kEmptyArchive)));
  }
  std::vector<HostTensor> widened;
  std::vector<std::string> headers;
  widened.reserve(tensors.size());
  headers.reserve(tensors.size());  // members borrow the texts
  const std::string temporary = temporary_name(path);
  int code = 0;
  zip_t* zip = zip_open(temporary.c_str(), ZIP_CREATE | ZIP_EXCL, &code);
  bool ok = zip != nullptr;
  int system_error = ok ? 0 : errno;
  for (const NamedTensor& entry : tensors) {
    const HostTensor* tensor = &entry.tensor;
    if (tensor->dtype() == DType::kBFloat16) {
      tensor = &widened.emplace_back(tensor->cast(DType::kFloat32));
    }
    headers.push_back(npy_header(tensor->dtype(), tensor->shape()));
    ok = ok && add_member(zip, entry.name, headers.back(), *tensor);
  }
  ok = ok && zip_close(zip) == 0;
  if (!ok) {
    if (zip != nullptr) {
      system_error = zip_error_code_system(zip_get_error(zip));
      zip_discard(zip);
    }
    ::unlink(temporary.c_str());
    throw FileError(ExitCode::kWriteFailed, "cannot write", path,
                    system_error != 0 ? system_error : EIO);
  }
  commit_temporary(temporary, path);
}

}  // namespace meshtrain
