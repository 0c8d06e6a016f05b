#include "base/host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace meshtrain {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string boot_id() {
  try {
    return std::string(trim(read_file("/proc/sys/kernel/random/boot_id", 4096)));
  } catch (const FileError&) {
    return {};
  }
}

std::string host_id() {
  struct stat network = {};
  ::stat("/proc/self/ns/net", &network);
  return fmt::format("{} {} {}", boot_id(), host_name(), network.st_ino);
}

std::string program_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  constexpr std::string_view kReplaced = " (deleted)";
  return ends_with(path, kReplaced) ? path.substr(0, path.size() - kReplaced.size()) : path;
}

std::string program_to_start() {
  std::error_code error;
  const bool is_here =
      std::filesystem::exists(std::filesystem::read_symlink("/proc/self/exe", error), error);
  return is_here ? program_path() : fmt::format("/proc/{}/exe", ::getpid());
}

}  // namespace meshtrain
