#include "tensor/zip.h"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/text.h"
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
void check_end_record(const InputFile& file, const char* damaged) {
  constexpr uint64_t kEndSize = 22;
  constexpr uint64_t kLocatorSize = 20;
  constexpr uint64_t kEnd64Size = 56;
  constexpr uint64_t kMemberSize = 46;  // at least, in the directory
  const std::string& path = file.path();
  const uint64_t size = file.size();
  if (size == 0) {
    read_error(damaged, path, "the file is empty");
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
    read_error(damaged, path, "not a zip archive, or one without its end ({} bytes): truncated?",
               format_thousands(static_cast<int64_t>(size)));
  }
  uint64_t members = little_endian(&tail[end + 10], 2);
  uint64_t directory_size = little_endian(&tail[end + 12], 4);
  uint64_t directory_begin = little_endian(&tail[end + 16], 4);
  if (end >= kLocatorSize && std::memcmp(&tail[end - kLocatorSize], "PK\x06\x07", 4) == 0) {
    const uint64_t at = little_endian(&tail[end - kLocatorSize + 8], 8);
    std::byte record[kEnd64Size];
    if (at > size || size - at < kEnd64Size) {
      read_error(damaged, path, "the zip64 end record lies outside of the file");
    }
    file.read_at(at, record, kEnd64Size);
    members = little_endian(record + 32, 8);
    directory_size = little_endian(record + 40, 8);
    directory_begin = little_endian(record + 48, 8);
  }
  const uint64_t end_begin = tail_begin + end;
  if (directory_begin > end_begin || directory_size > end_begin - directory_begin) {
    read_error(damaged, path, "the archive's directory lies outside of the file: truncated?");
  }
  if (members > kMaxMembers) {
    read_error(damaged, path, "the archive says it has {} members; at most {} are read", members,
               kMaxMembers);
  }
  if (members * kMemberSize > directory_size) {
    read_error(damaged, path, "the archive says it has {} members, its directory has room for {}",
               members, directory_size / kMemberSize);
  }
}

// Throws for a name that leads out of a folder or that a terminal should not see.
void check_name(const std::string& path, const char* damaged, std::string_view name) {
  const std::string shown = printable(name);
  if (name.size() > kMaxName) {
    read_error(damaged, path, "member `{}` has a name of {} bytes", shown, name.size());
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\';
  });
  bool leads_out = false;
  const std::string_view without_slash =
      ends_with(name, "/") ? name.substr(0, name.size() - 1) : name;
  for (const std::string& part : split(without_slash, '/')) {  // a folder ends with one
    leads_out = leads_out || part.empty() || part == "." || part == "..";
  }
  if (control || leads_out) {
    read_error(damaged, path, "member `{}` has a name that is not accepted", shown);
  }
}

void check_member(const std::string& path, const char* damaged, const zip_stat_t& stat,
                  uint64_t file_size) {
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  const std::string name = printable(stat.name);
  if ((stat.valid & kNeeded) != kNeeded) {
    read_error(damaged, path, "member `{}` has no sizes", name);
  }
  if (stat.encryption_method != ZIP_EM_NONE) {
    read_error(damaged, path, "member `{}` is encrypted", name);
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    read_error(damaged, path,
               "member `{}` is compressed by method {}; stored and deflated are read", name,
               stat.comp_method);
  }
  const bool lies = stat.comp_size > file_size ||
                    (stat.comp_method == ZIP_CM_STORE && stat.size != stat.comp_size) ||
                    stat.size / kMaxRatio > stat.comp_size + 1;
  const bool bomb = stat.size > kBombBytes && stat.size / kBombRatio > stat.comp_size;
  if (lies || bomb) {
    read_error(damaged, path, "member `{}` declares {} for {} stored{}", name,
               stat.size > INT64_MAX ? "over 8 EiB" : format_bytes(static_cast<int64_t>(stat.size)),
               stat.comp_size > INT64_MAX ? "over 8 EiB"
                                          : format_bytes(static_cast<int64_t>(stat.comp_size)),
               lies ? ", which cannot be" : "");
  }
}

}  // namespace

// One member's bytes, decompressed.
class ZipReader::OpenMember final : public ZipReader::Member {
 public:
  OpenMember(zip_t* zip, const zip_stat_t& stat, const std::string& path, const char* damaged)
      : path_(path), damaged_(damaged), name_(printable(stat.name)), remaining_(stat.size) {
    file_ = zip_fopen_index(zip, stat.index, 0);
    if (file_ == nullptr) {
      read_error(damaged_, path_, "member `{}`: {}", name_, zip_strerror(zip));
    }
  }
  ~OpenMember() override { zip_fclose(file_); }
  OpenMember(const OpenMember&) = delete;

  uint64_t remaining() const override { return remaining_; }

  void read(std::byte* to, size_t num_bytes) override {
    MESHTRAIN_CHECK(num_bytes <= remaining_);
    while (num_bytes > 0) {
      const size_t got = read_some(to, num_bytes);
      if (got == 0) {
        read_error(damaged_, path_, "member `{}` ends {} bytes early", name_, remaining_);
      }
      to += got;
      num_bytes -= got;
      remaining_ -= got;
    }
  }

  // Reads on to the end; libzip compares the checksum there.
  void finish() override {
    std::byte buffer[1 << 14];
    while (remaining_ > 0) {
      read(buffer, std::min<uint64_t>(remaining_, sizeof(buffer)));
    }
    if (read_some(buffer, 1) != 0) {
      read_error(damaged_, path_, "member `{}` is longer than it declares", name_);
    }
  }

 private:
  size_t read_some(std::byte* to, size_t num_bytes) {
    const zip_int64_t got = zip_fread(file_, to, num_bytes);
    if (got < 0) {
      read_error(damaged_, path_, "member `{}` is damaged: {}", name_, zip_file_strerror(file_));
    }
    return static_cast<size_t>(got);
  }

  const std::string& path_;
  const char* damaged_;
  std::string name_;
  zip_file_t* file_;
  uint64_t remaining_;
};

struct ZipReader::Archive {
  zip_t* zip = nullptr;
  std::vector<zip_stat_t> members;  // as names_
  ~Archive() {
    if (zip != nullptr) {
      zip_discard(zip);
    }
  }
};

ZipReader::ZipReader(const std::string& path, ZipCodes codes)
    : path_(path), codes_(codes), archive_(new Archive) {
  const InputFile file = open_input(path, codes.missing, codes.missing);
  check_end_record(file, codes.damaged);
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
    read_error(codes.damaged, path, "damaged archive: {}", text);
  }
  const zip_int64_t count = zip_get_num_entries(archive_->zip, 0);
  std::set<std::string> seen;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive_->zip, static_cast<zip_uint64_t>(i), 0, &stat) != 0 ||
        stat.name == nullptr) {
      read_error(codes.damaged, path, "member {}: {}", i, zip_strerror(archive_->zip));
    }
    check_name(path, codes.damaged, stat.name);
    names_.emplace_back(stat.name);
    if (!seen.insert(names_.back()).second) {
      read_error(codes.damaged, path, "two members are named `{}`", printable(stat.name));
    }
    check_member(path, codes.damaged, stat, file.size());
    archive_->members.push_back(stat);
  }
}

ZipReader::~ZipReader() = default;

bool ZipReader::has(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

size_t ZipReader::index_of(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    read_error(codes_.damaged, path_, "no member `{}` in the archive", name);
  }
  return static_cast<size_t>(found - names_.begin());
}

uint64_t ZipReader::size(std::string_view name) const {
  return archive_->members[index_of(name)].size;
}

std::unique_ptr<ZipReader::Member> ZipReader::open(std::string_view name) const {
  const zip_stat_t& stat = archive_->members[index_of(name)];
  if (stat.size > kTrustedBytes && stat.size / kTrustedRatio > stat.comp_size) {
    OpenMember(archive_->zip, stat, path_, codes_.damaged).finish();
  }
  return std::make_unique<OpenMember>(archive_->zip, stat, path_, codes_.damaged);
}

std::string ZipReader::text(std::string_view name, uint64_t max_bytes) const {
  if (size(name) > max_bytes) {
    read_error(codes_.damaged, path_, "member `{}` has {} bytes; at most {} are read", name,
               size(name), max_bytes);
  }
  return read(name, [](ByteReader& bytes) {
    std::string out(bytes.remaining(), '\0');
    bytes.read(reinterpret_cast<std::byte*>(out.data()), out.size());
    return out;
  });
}

namespace {

// Adds one member that borrows its pieces until the archive is closed.
bool add_member(zip_t* zip, const ZipMember& member) {
  std::vector<zip_buffer_fragment_t> fragments;
  for (const std::span<const std::byte> piece : member.pieces) {
    if (!piece.empty()) {
      fragments.push_back(
          {reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(piece.data())), piece.size()});
    }
  }
  zip_source_t* source = zip_source_buffer_fragment(zip, fragments.data(), fragments.size(), 0);
  if (source == nullptr) {
    return false;
  }
  const zip_int64_t index = zip_file_add(zip, member.name.c_str(), source, ZIP_FL_ENC_UTF_8);
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

void write_zip(const std::string& path, std::span<const ZipMember> members) {
  if (members.empty()) {  // libzip writes no file for an archive without members
    constexpr char kEmptyArchive[22] = {'P', 'K', 5, 6};
    return write_file_atomic(path, std::string_view(kEmptyArchive, sizeof(kEmptyArchive)));
  }
  const std::string temporary = temporary_name(path);
  int code = 0;
  zip_t* zip = zip_open(temporary.c_str(), ZIP_CREATE | ZIP_EXCL, &code);
  bool ok = zip != nullptr;
  int system_error = ok ? 0 : errno;
  for (const ZipMember& member : members) {
    ok = ok && add_member(zip, member);
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
