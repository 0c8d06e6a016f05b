#include "config/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "base/utf8.h"
#include "config/run_files.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// Refuses the byte at `offset`. The shown text must itself be printable.
[[noreturn]] void refuse_byte(const std::string& name, std::string text, size_t offset) {
  const unsigned value = static_cast<unsigned char>(text[offset]);
  int line = 1;
  size_t line_start = 0;
  for (size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++line;
      line_start = i + 1;
    }
  }
  const bool is_utf16 = text.size() >= 2 && offset < 2 &&
                        (text.compare(0, 2, "\xFF\xFE") == 0 ||
                         text.compare(0, 2, "\xFE\xFF") == 0 || text[1] == '\0');
  for (char& c : text) {
    const auto u = static_cast<unsigned char>(c);
    c = (u >= 0x80 || (u < 0x20 && c != '\n')) ? '?' : c;
  }
  auto file = std::make_shared<SourceFile>(SourceFile{name, std::move(text)});
  const int column = static_cast<int>(offset - line_start) + 1;
  ConfigError problem(
      "E103", {file, line, column, 1},
      value == 0 ? fmt::format("byte 0x00 at {}:{}: a configuration is text", line, column)
                 : fmt::format("byte 0x{:02x} at {}:{} is not UTF-8", value, line, column));
  problem.help(is_utf16 ? "this looks like UTF-16; save the file as UTF-8"
                        : "save the file as UTF-8");
  throw problem;
}

[[noreturn]] void refuse_file(const SourceLoc& named_at, std::string message, std::string note) {
  Diagnostics diagnostics;
  Diagnostic& d = diagnostics.error("E100", named_at, std::move(message));
  if (!note.empty()) {
    d.notes.push_back(std::move(note));
  }
  throw ConfigError(diagnostics);
}

// Names in the same folder that the user may have meant.
std::string similar_names(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const std::string wanted = fs::path(path).filename().string();
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if ((ends_with(name, ".yaml") || ends_with(name, ".yml")) && names.size() < 10000) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  const std::optional<std::string> best = nearest_name(wanted, names);
  return best ? fmt::format("similar: `{}`", (folder / *best).string()) : std::string();
}

std::string kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

// Everything from `fd`, one byte more than allowed at most.
std::string read_all(int fd, const std::string& path, const SourceLoc& named_at) {
  std::string text;
  char buffer[1 << 16];
  while (text.size() <= kMaxConfigBytes) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      refuse_file(named_at, fmt::format("cannot read `{}`: {}", path, std::strerror(errno)), "");
    }
    if (got == 0) {
      break;
    }
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

[[noreturn]] void refuse_size(const std::string& name, int64_t bytes, bool at_least) {
  throw ConfigError("E102", {},
                    fmt::format("configuration `{}` is {}{}; the limit is {} (data belongs in data "
                                "files)",
                                name, at_least ? "more than " : "", format_bytes(bytes),
                                format_bytes(static_cast<int64_t>(kMaxConfigBytes))));
}

}  // namespace

std::shared_ptr<const SourceFile> checked_source(std::string name, std::string text) {
  if (text.size() > kMaxConfigBytes) {
    refuse_size(name, static_cast<int64_t>(text.size()) - 1, true);
  }
  if (starts_with(text, "\xEF\xBB\xBF")) {
    text.erase(0, 3);
  }
  for (size_t i = 0; i < text.size();) {
    const size_t length = text[i] == '\0' ? 0 : utf8_length(text, i);
    if (length == 0) {
      refuse_byte(name, std::move(text), i);
    }
    i += length;
  }
  return std::make_shared<SourceFile>(SourceFile{std::move(name), std::move(text)});
}

std::shared_ptr<const SourceFile> read_source(const std::string& path, const SourceLoc& named_at) {
  if (path == "-") {  // which can be read only once, by whoever comes first
    static const std::string text = read_all(STDIN_FILENO, "standard input", named_at);
    return checked_source("<stdin>", text);
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    refuse_file(
        named_at,
        fmt::format("cannot open `{}`: {}", path, missing ? "no such file" : std::strerror(error)),
        missing ? similar_names(path) : "");
  }
  if (!S_ISREG(info.st_mode)) {
    refuse_file(named_at,
                fmt::format("`{}` is {}, not a regular file", path, kind_of(info.st_mode)),
                S_ISFIFO(info.st_mode) ? "help: to read from standard input write `-`" : "");
  }
  if (info.st_size > static_cast<off_t>(kMaxConfigBytes)) {
    refuse_size(path, info.st_size, false);
  }
  // O_NONBLOCK: should the file have been replaced by a pipe meanwhile, opening must not wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    refuse_file(named_at, fmt::format("cannot open `{}`: {}", path, std::strerror(error)),
                error == EACCES ? fmt::format("note: its owner is user {}, its mode {:04o}",
                                              info.st_uid, info.st_mode & 07777)
                                : "");
  }
  struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } closer{fd};
  return checked_source(path, read_all(fd, path, named_at));
}

std::string folder_of(const std::string& file) {
  return file == "-" || file == "<stdin>" ? std::string() : fs::path(file).parent_path().string();
}

std::string_view noted_origin(const SourceFile& file, int line) {
  constexpr std::string_view kMark = "  # ";
  if (!ends_with(file.name, run_files::kResolved)) {
    return {};
  }
  const std::string_view text = file.line(line);
  const size_t at = text.rfind(kMark);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + kMark.size());
}

bool may_be_default(const SourceLoc& loc) {
  if (!loc || !ends_with(loc.file->name, run_files::kResolved)) {
    return false;
  }
  const std::string_view origin = noted_origin(*loc.file, loc.line);
  return origin.empty() || origin == "default";
}

std::string without_origins(const SourceFile& file) {
  std::string out;
  for (const std::string& line : split(file.text, '\n')) {
    const size_t at = line.rfind("  # ");
    const size_t end = at == std::string::npos ? at : line.find_last_not_of(' ', at);
    out += line.substr(0, end == std::string::npos ? end : end + 1);
    out += '\n';
  }
  out.pop_back();  // split() also gives what follows the last line feed
  return out;
}

std::string written_place(const SourceLoc& loc) {
  const std::string_view noted = loc ? noted_origin(*loc.file, loc.line) : std::string_view();
  return noted.empty() || noted == "default" ? loc.to_string() : std::string(noted);
}

std::string resolve_path(const ConfigValue& value, const std::string& folder) {
  const fs::path path(value.string());
  if (path.is_absolute()) {
    return path.string();
  }
  const bool is_word = value.loc.file != nullptr && value.loc.file->name == "command line";
  std::error_code error;
  if (is_word && fs::exists(path, error)) {
    return path.string();
  }
  const std::string own =
      is_word || value.loc.file == nullptr ? folder : folder_of(value.loc.file->name);
  return (fs::path(own) / path).lexically_normal().string();
}

}  // namespace meshtrain
