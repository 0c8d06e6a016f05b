// Loaded into a process with LD_PRELOAD: writes down every call that changes files below a folder,
// and can make one of them fail, do half its work, or be the last thing that the process does.
//
//   MESHTRAIN_RECORD=FILE          where the calls are written down (see crash_states.h)
//   MESHTRAIN_RECORD_FOLDER=DIR    absolute; calls elsewhere are not recorded
//   MESHTRAIN_FAULT=N:WHAT         the N-th call (from 1): KILL before it, SHORT, or an errno name;
//                                  N+:WHAT for it and all that follow
//   MESHTRAIN_UNSYNCED=folders|all syncs that do nothing: a broken program, for testing the tests
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <string>

namespace {

struct ErrorName {
  const char* name;
  int number;
};
constexpr ErrorName kErrors[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO},
                                 {"EACCES", EACCES}, {"EROFS", EROFS},   {"EINTR", EINTR}};

// Made at the first call, which other libraries may make before this one is set up.
struct State {
  State() {
    const char* text = getenv("MESHTRAIN_RECORD_FOLDER");
    folder = text ? text : "";
    text = getenv("MESHTRAIN_UNSYNCED");
    unsynced = text ? text : "";
    if (const char* path = getenv("MESHTRAIN_RECORD")) {
      log = static_cast<int>(
          syscall(SYS_open, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    }
    if (const char* fault = getenv("MESHTRAIN_FAULT")) {
      char* end = nullptr;
      fault_at = strtol(fault, &end, 10);
      fault_stays = *end == '+';
      what = strchr(fault, ':') + 1;
    }
  }
  std::mutex mutex;
  int log = -1;
  std::string folder, unsynced, what;
  long calls = 0;
  long fault_at = 0;
  bool fault_stays = false;
};

State& state() {
  static State* const kState = new State();
  return *kState;
}

std::string link_of(int fd) {
  char path[PATH_MAX];
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = syscall(SYS_readlink, name.c_str(), path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

// The path below the folder, or "" for one elsewhere.
std::string below(std::string path) {
  if (state().folder.empty() ||
      path.compare(0, state().folder.size() + 1, state().folder + "/") != 0) {
    return "";
  }
  path.erase(0, state().folder.size() + 1);
  for (size_t at = 0; (at = path.find("//")) != std::string::npos;) {
    path.erase(at, 1);
  }
  return path;
}

std::string below(int folder, const char* path) {
  if (path[0] == '/') {
    return below(std::string(path));
  }
  if (folder != AT_FDCWD) {
    return below(link_of(folder) + "/" + path);
  }
  char here[PATH_MAX];
  return getcwd(here, sizeof(here)) ? below(std::string(here) + "/" + path) : "";
}

// kind, lengths of the three texts, offset, the texts
void note(char kind, const std::string& a, const std::string& b = {}, const std::string& data = {},
          long offset = 0) {
  if (state().log < 0) {
    return;
  }
  char head[64];
  const int length = snprintf(head, sizeof(head), "%c %zu %zu %zu %ld\n", kind, a.size(), b.size(),
                              data.size(), offset);
  const std::string text = std::string(head, static_cast<size_t>(length)) + a + b + data + "\n";
  syscall(SYS_write, state().log, text.data(), text.size());
}

// Whether this call is to fail; sets errno. `half` is set for SHORT.
bool fault(bool* half = nullptr) {
  ++state().calls;
  if (state().fault_at == 0 || state().calls < state().fault_at ||
      (state().calls > state().fault_at && !state().fault_stays)) {
    return false;
  }
  if (state().what == "KILL") {
    syscall(SYS_kill, getpid(), SIGKILL);
  }
  if (state().what == "SHORT") {
    if (half) {
      *half = true;
    }
    return false;
  }
  if (state().what == "EINTR" && state().calls > state().fault_at + 3) {
    return false;  // signals come to an end
  }
  for (const ErrorName& error : kErrors) {
    if (state().what == error.name) {
      errno = error.number;
      return true;
    }
  }
  return false;
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const bool creates = (flags & (O_CREAT | O_TRUNC)) != 0;
  const std::string where = creates ? below(folder, path) : "";
  if (where.empty()) {
    return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
  }
  struct stat status;
  const bool exists = fstatat(folder, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (fault()) {
    return -1;
  }
  const int fd = static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
  if (fd >= 0 && !exists) {
    note('C', where);
  } else if (fd >= 0 && (flags & O_TRUNC) != 0) {
    note('T', where);
  }
  return fd;
}

ssize_t write_at(int fd, const void* data, size_t count, long offset) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string where = fd > 2 ? below(link_of(fd)) : "";
  const auto plain = [&](size_t bytes) {
    return static_cast<ssize_t>(offset < 0 ? syscall(SYS_write, fd, data, bytes)
                                           : syscall(SYS_pwrite64, fd, data, bytes, offset));
  };
  if (where.empty()) {
    const std::string text(static_cast<const char*>(data), count);
    if (fd == 2 && text.find("saved step ") != std::string::npos) {
      note('A', "", "", text);
    }
    return plain(count);
  }
  bool half = false;
  if (fault(&half)) {
    return -1;
  }
  const long at = offset >= 0                            ? offset
                  : (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? lseek(fd, 0, SEEK_END)
                                                         : lseek(fd, 0, SEEK_CUR);
  const ssize_t written = plain(half && count > 1 ? count / 2 : count);
  if (written > 0) {
    note('W', where, "", std::string(static_cast<const char*>(data), static_cast<size_t>(written)),
         at);
  }
  return written;
}

int sync_file(int fd, long call) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string where = below(link_of(fd));
  struct stat status = {};
  fstat(fd, &status);
  const bool is_folder = S_ISDIR(status.st_mode);
  if (where.empty() && link_of(fd) != state().folder) {
    return static_cast<int>(syscall(call, fd));
  }
  if (fault()) {
    return -1;
  }
  if (state().unsynced == "all" || (state().unsynced == "folders" && is_folder)) {
    return 0;
  }
  note(is_folder ? 'F' : 'S', where);
  return 0;  // what is on the disk is decided when the states are rebuilt
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string a = below(from_folder, from), b = below(to_folder, to);
  if (!b.empty() && fault()) {
    return -1;
  }
  const int result =
      static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  if (result == 0 && !b.empty()) {
    note((flags & RENAME_EXCHANGE) != 0 ? 'X' : 'R', a, b);
  }
  return result;
}

int truncate_at(int fd, off_t size) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string where = below(link_of(fd));
  if (!where.empty() && fault()) {
    return -1;
  }
  const int result = static_cast<int>(syscall(SYS_ftruncate, fd, size));
  if (result == 0 && !where.empty()) {
    note('Z', where, "", "", size);
  }
  return result;
}

// Of files that were open for writing. The descriptor is gone even when an error is reported.
int close_at(int fd) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const int flags = fcntl(fd, F_GETFL);
  const bool writes = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  const std::string where = writes ? below(link_of(fd)) : "";
  const bool fails = !where.empty() && fault();
  const int error = errno;
  const int result = static_cast<int>(syscall(SYS_close, fd));
  if (fails) {
    errno = error;
    return -1;
  }
  if (result == 0 && !where.empty()) {
    note('E', where);
  }
  return result;
}

int unlink_at(int folder, const char* path, int flags) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string where = below(folder, path);
  if (!where.empty() && fault()) {
    return -1;
  }
  const int result = static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
  if (result == 0 && !where.empty()) {
    note('U', where);
  }
  return result;
}

int mkdir_at(int folder, const char* path, mode_t mode) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string where = below(folder, path);
  if (!where.empty() && fault()) {
    return -1;
  }
  const int result = static_cast<int>(syscall(SYS_mkdirat, folder, path, mode));
  if (result == 0 && !where.empty()) {
    note('D', where);
  }
  return result;
}

mode_t mode_of(int flags, va_list list) {
  return (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

extern "C" {

#define RECORDED_OPEN(NAME)                      \
  int NAME(const char* path, int flags, ...) {   \
    va_list list;                                \
    va_start(list, flags);                       \
    const mode_t mode = mode_of(flags, list);    \
    va_end(list);                                \
    return open_at(AT_FDCWD, path, flags, mode); \
  }
#define RECORDED_OPENAT(NAME)                              \
  int NAME(int folder, const char* path, int flags, ...) { \
    va_list list;                                          \
    va_start(list, flags);                                 \
    const mode_t mode = mode_of(flags, list);              \
    va_end(list);                                          \
    return open_at(folder, path, flags, mode);             \
  }
RECORDED_OPEN(open)
RECORDED_OPEN(open64)
RECORDED_OPENAT(openat)
RECORDED_OPENAT(openat64)

ssize_t write(int fd, const void* data, size_t count) {
  return write_at(fd, data, count, -1);
}
ssize_t pwrite(int fd, const void* data, size_t count, off_t offset) {
  return write_at(fd, data, count, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t count, off_t offset) {
  return write_at(fd, data, count, offset);
}
int ftruncate(int fd, off_t size) noexcept {
  return truncate_at(fd, size);
}
int ftruncate64(int fd, off_t size) noexcept {
  return truncate_at(fd, size);
}
int close(int fd) {
  return close_at(fd);
}
int fsync(int fd) {
  return sync_file(fd, SYS_fsync);
}
int fdatasync(int fd) {
  return sync_file(fd, SYS_fdatasync);
}
int rename(const char* from, const char* to) noexcept {
  return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int a, const char* from, int b, const char* to) noexcept {
  return rename_at(a, from, b, to, 0);
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return rename_at(a, from, b, to, flags);
}
int unlink(const char* path) noexcept {
  return unlink_at(AT_FDCWD, path, 0);
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return unlink_at(folder, path, flags);
}
int rmdir(const char* path) noexcept {
  return unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}
int remove(const char* path) noexcept {
  const int result = unlink_at(AT_FDCWD, path, 0);
  return result != 0 && errno == EISDIR ? unlink_at(AT_FDCWD, path, AT_REMOVEDIR) : result;
}
int mkdir(const char* path, mode_t mode) noexcept {
  return mkdir_at(AT_FDCWD, path, mode);
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return mkdir_at(folder, path, mode);
}
int symlink(const char* target, const char* path) noexcept {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const std::string where = below(AT_FDCWD, path);
  if (!where.empty() && fault()) {
    return -1;
  }
  const int result = static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, path));
  if (result == 0 && !where.empty()) {
    note('L', where, target);
  }
  return result;
}

}  // extern "C"
