#include "tensor/zip.h"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/printable.h"
#include "base/text.h"
#include "tensor/zip_directory.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxMemberName = 512;
// Deflate cannot shrink below 1/1032: a larger claim is false.
constexpr uint64_t kMaxRatio = 1032;
// A member both larger and denser than these is refused even if it is true.
constexpr uint64_t kBombBytes = uint64_t{1} << 30;
constexpr uint64_t kBombRatio = 100;
// Members larger and denser than these are read once without storing before memory is taken for
// them. Images of digits have a ratio of about 5: they are read only once.
constexpr uint64_t kTrustedBytes = uint64_t{1} << 24;
constexpr uint64_t kTrustedRatio = 8;

// Throws for a name that leads out of a folder or that a terminal should not see.
void check_name(const std::string& path, const char* damaged, std::string_view name) {
  const std::string shown = printable(name);
  if (name.size() > kMaxMemberName) {
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
class ZipReader::OpenMember final : public ByteReader {
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
  explicit Archive(InputFile opened) : file(std::move(opened)) {}
  InputFile file;
  ZipDirectory directory;
  zip_t* zip = nullptr;
  std::vector<zip_stat_t> members;  // as names_
  ~Archive() {
    if (zip != nullptr) {
      zip_discard(zip);
    }
  }
};

ZipReader::ZipReader(const std::string& path, ZipCodes codes)
    : path_(path),
      codes_(codes),
      archive_(new Archive(open_input(path, codes.missing, codes.missing))) {
  const InputFile& file = archive_->file;
  archive_->directory = read_zip_directory(file, codes.damaged);
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

uint32_t ZipReader::crc(std::string_view name) const {
  return archive_->members[index_of(name)].crc;
}

std::optional<uint64_t> ZipReader::stored_offset(std::string_view name) const {
  const size_t index = index_of(name);
  const zip_stat_t& stat = archive_->members[index];
  if (stat.comp_method != ZIP_CM_STORE) {
    return std::nullopt;
  }
  return member_offset(archive_->file, archive_->directory, index, stat.size, codes_.damaged);
}

std::unique_ptr<ByteReader> ZipReader::open(std::string_view name) const {
  return std::make_unique<OpenMember>(archive_->zip, archive_->members[index_of(name)], path_,
                                      codes_.damaged);
}

void ZipReader::check_claim(std::string_view name) const {
  const zip_stat_t& stat = archive_->members[index_of(name)];
  if (stat.size > kTrustedBytes && stat.size / kTrustedRatio > stat.comp_size) {
    open(name)->finish();
  }
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

// Adds one member that borrows its chunks until the archive is closed.
bool add_member(zip_t* zip, const ZipMember& member) {
  std::vector<zip_buffer_fragment_t> fragments;
  for (const std::span<const std::byte> chunk : member.chunks) {
    if (!chunk.empty()) {
      fragments.push_back(
          {reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(chunk.data())), chunk.size()});
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
