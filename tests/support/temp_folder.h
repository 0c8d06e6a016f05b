// A folder that exists as long as the object, for tests of files; and what a call threw.
#pragma once

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace meshtrain::test {

// $TMPDIR; else memory, where it has 4 GiB and programs may be started from it; else /tmp. A sync
// of a disk takes 5 ms or more, and a test of checkpoints makes thousands.
inline std::filesystem::path temp_place() {
  struct statvfs memory = {};
  const bool is_memory = std::getenv("TMPDIR") == nullptr && ::access("/dev/shm", W_OK) == 0 &&
                         ::statvfs("/dev/shm", &memory) == 0 && (memory.f_flag & ST_NOEXEC) == 0 &&
                         memory.f_bavail * memory.f_frsize >= (uint64_t{4} << 30);
  return is_memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (temp_place() / "meshtrain-XXXXXX").string();
    MESHTRAIN_CHECK(::mkdtemp(pattern.data()) != nullptr, "{}", pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    // ext4 flushes a file that is cut to nothing and written again: 5 ms each. A new one it does
    // not.
    std::filesystem::remove(file(name));
    std::ofstream(file(name), std::ios::binary) << content;
    return file(name);
  }
  std::string read(std::string_view name) const {
    std::ostringstream text;
    text << std::ifstream(file(name), std::ios::binary).rdbuf();
    return text.str();
  }
  size_t num_files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) {
      ++count;
    }
    return count;
  }

 private:
  std::string path_;
};

// What a call threw: the first code of a ConfigError, its exit code and text.
struct Caught {
  std::string code;  // "" when nothing was thrown, "?" for another error
  int exit_code = 0;
  std::string text;

  bool says(std::string_view part) const { return text.find(part) != std::string::npos; }
};

template <class F>
Caught caught(F&& function) {
  try {
    function();
    return {};
  } catch (const ConfigError& error) {
    return {error.diagnostics().list().front().code, static_cast<int>(error.exit_code()),
            error.what()};
  } catch (const Error& error) {
    return {"?", static_cast<int>(error.exit_code()), error.what()};
  }
}

}  // namespace meshtrain::test
