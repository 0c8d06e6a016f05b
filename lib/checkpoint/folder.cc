#include "checkpoint/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/system_calls.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

namespace meshtrain {
namespace {

constexpr time_t kDay = 24 * 60 * 60;

std::string read_lock(int fd) {
  char text[512] = {};
  const ssize_t count = ::pread(fd, text, sizeof(text) - 1, 0);
  return std::string(
      trim(std::string_view(text, static_cast<size_t>(std::max<ssize_t>(count, 0)))));
}

bool is_older_than_a_day(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && time(nullptr) - status.st_mtime > kDay;
}

// Room, and the calls that every save needs.
void probe(const std::string& folder) {
  const std::string from = fmt::format("{}/tmp.probe.{}", folder, getpid());
  const std::string to = from + ".renamed";
  remove_folder(from);
  remove_folder(to);
  try {
    make_new_folder(from);
    rename_to_new(from, to);
    sync_folder(folder);
  } catch (const FileError&) {
    remove_folder(from);
    remove_folder(to);
    throw;
  }
  if (retrying([&] { return ::rmdir(to.c_str()); }) != 0) {
    throw FileError(ExitCode::kWriteFailed, "cannot remove", to, errno);
  }
}

// Whoever only looks whether a run is in use (record/run_list.h) has its lock for a moment.
bool take_lock(int fd, int operation, int tries) {
  for (;; --tries) {
    if (retrying([&] { return ::flock(fd, operation | LOCK_NB); }) == 0 || errno != EWOULDBLOCK) {
      return true;
    }
    if (tries == 0) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

ConfigError in_use(const std::string& folder, const std::string& holder) {
  return {"E455", {}, fmt::format("`{}` is in use by another process: {}", folder, holder)};
}

}  // namespace

CheckpointLock::CheckpointLock(const std::string& folder, const std::string& run_id) {
  const std::string path = folder + "/LOCK";
  fd_ = retrying(
      [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666); });
  if (fd_ < 0) {
    throw FileError(ExitCode::kWriteFailed, "cannot create", path, errno);
  }
  const bool is_taken = !take_lock(fd_, LOCK_EX, 5);
  const std::string holder = read_lock(fd_);
  if (is_taken) {
    ::close(fd_);
    fd_ = -1;
    throw in_use(folder, holder);
  }
  // Another error: a file system without locks; the folder of a run is its own all the same.
  const std::vector<std::string> words = split(holder, ' ');
  previous_run_ = words.size() >= 2 && words[0] == "run" ? words[1] : "";
  const std::string text =
      fmt::format("run {} pid {} on {} since {}\n", run_id, getpid(), host_name(), utc_time());
  // For people; the lock itself is what counts.
  if (retrying([&] { return ::ftruncate(fd_, 0); }) != 0 ||
      ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    previous_run_.clear();
  }
}

CheckpointLock::~CheckpointLock() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void check_unlocked(const std::string& folder) {
  const std::string path = folder + "/LOCK";
  const int fd = retrying([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); });
  if (fd < 0) {
    return;
  }
  const bool is_taken = !take_lock(fd, LOCK_SH, 25);  // a killed process may have it for a moment
  const std::string holder = read_lock(fd);
  ::close(fd);
  if (is_taken) {
    throw in_use(folder, holder);
  }
}

std::vector<std::string> clean_checkpoints(const std::string& folder,
                                           const std::vector<std::string>& run_ids) {
  std::vector<std::string> warnings;
  for (const std::string& name : folder_names(folder)) {
    const std::vector<std::string> parts = split(name, '.');
    const bool unfinished = parts[0] == "tmp";
    if (parts.size() < 3 || (!unfinished && parts[0] != "trash")) {
      continue;
    }
    const std::string path = folder + "/" + name;
    const bool ours = std::find(run_ids.begin(), run_ids.end(), parts[2]) != run_ids.end();
    if (!is_real_folder(path) || (!ours && !is_older_than_a_day(path))) {
      continue;
    }
    if (const auto problem = remove_folder(path)) {
      warnings.push_back(*problem);
    } else if (unfinished && step_of_name(parts[1]) >= 0) {
      warnings.push_back(
          fmt::format("[E401] an unfinished save of step {} was removed", step_of_name(parts[1])));
    }
  }
  return warnings;
}

std::vector<std::string> quarantine(const std::string& folder, const std::vector<int64_t>& steps) {
  std::vector<std::string> out;
  for (const int64_t step : steps) {
    const std::string name = checkpoint_name(step);
    for (int n = 1;; ++n) {
      const std::string quarantined = fmt::format("{}/aside.{}.{}", folder, name, n);
      try {
        rename_to_new(folder + "/" + name, quarantined);
        out.push_back(quarantined);
        break;
      } catch (const FileError& error) {
        if (error.error_number() != EEXIST || n == 1000) {
          throw;
        }
      }
    }
  }
  if (!steps.empty()) {
    sync_folder(folder);
  }
  return out;
}

int64_t best_link(const std::string& folder) {
  std::error_code error;
  return step_of_name(std::filesystem::read_symlink(folder + "/best", error).string());
}

void set_best_link(const std::string& folder, int64_t step) {
  const std::string link = folder + "/best";
  if (step >= 0) {
    replace_link(checkpoint_name(step), link);
  } else if (::unlink(link.c_str()) != 0 && errno != ENOENT) {
    throw FileError(ExitCode::kWriteFailed, "cannot remove", link, errno);
  }
  sync_folder(folder);
}

void check_checkpoint_folder(const std::string& folder, int64_t num_bytes, int64_t keep) {
  try {
    probe(folder);
  } catch (const FileError& error) {
    throw ConfigError("E421", {}, fmt::format("checkpoints cannot be saved: {}", error.what()))
        .help("another place for results: -o DIR; or checkpoint.every=never");
  }
  const int64_t there = static_cast<int64_t>(checkpoint_steps(folder).size());
  const int64_t wanted = num_bytes * std::max<int64_t>(keep + 1 - there, 1);
  const std::optional<int64_t> free = free_bytes(folder);
  if (free && *free < wanted) {
    throw ConfigError(
        "E420", {},
        fmt::format("no room for checkpoints in `{}`: {} more of {} each, {} are free", folder,
                    std::max<int64_t>(keep + 1 - there, 1), format_bytes(num_bytes),
                    format_bytes(*free)))
        .help(
            "another place for results (-o DIR), a smaller checkpoint.keep, or "
            "checkpoint.every=never");
  }
}

std::vector<std::string> prune_checkpoints(const std::string& folder, int64_t keep,
                                           const std::vector<int64_t>& pinned,
                                           const std::string& run_id) {
  std::vector<std::string> warnings;
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  const int64_t best = best_link(folder);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 2)); i < steps.size(); ++i) {
    if (steps[i] == best || std::find(pinned.begin(), pinned.end(), steps[i]) != pinned.end()) {
      continue;
    }
    const std::string name = checkpoint_name(steps[i]);
    const std::string deleting = fmt::format("{}/trash.{}.{}", folder, name, run_id);
    try {
      remove_folder(deleting);
      rename_to_new(folder + "/" + name, deleting);
    } catch (const FileError& error) {
      warnings.push_back(fmt::format("the old checkpoint {} stays: {}", name, error.what()));
      continue;
    }
    if (const auto problem = remove_folder(deleting)) {
      warnings.push_back(*problem);
    }
  }
  return warnings;
}

std::string new_run_id() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t unique[] = {now.tv_sec, now.tv_nsec, getpid()};
  return hex64(hash_bytes(unique, sizeof(unique))).substr(0, 8);
}

std::string utc_time() {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace meshtrain
