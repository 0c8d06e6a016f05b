// What tests compile when they run, kept for later runs, other builds and other checkouts.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace meshtrain::test {

// Whether `folder` is a folder, and no link to one, of this user to which nobody else has access:
// what lies there is loaded into tests. Made where it is missing.
inline bool is_private_folder(const std::filesystem::path& folder) {
  ::mkdir(folder.c_str(), 0700);
  struct stat found = {};
  return ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid() && (found.st_mode & 077) == 0;
}

// $XDG_CACHE_HOME/meshtrain-tests/NAME, else ~/.cache/meshtrain-tests/NAME, else a folder for
// temporary files: the first of these that is private to this user. Throws where none is.
inline std::filesystem::path test_cache_folder(const std::string& name) {
  namespace fs = std::filesystem;
  const auto text_of = [](const char* variable) {
    const char* const text = std::getenv(variable);
    return std::string(text == nullptr ? "" : text);
  };
  std::vector<fs::path> places;
  if (!text_of("XDG_CACHE_HOME").empty())
    places.push_back(fs::path(text_of("XDG_CACHE_HOME")) / "meshtrain-tests");
  if (!text_of("HOME").empty())
    places.push_back(fs::path(text_of("HOME")) / ".cache/meshtrain-tests");
  places.push_back(fs::temp_directory_path() / ("meshtrain-tests-" + std::to_string(::geteuid())));
  std::string tried;
  for (const fs::path& place : places) {
    std::error_code ignored;
    fs::create_directories(place.parent_path(), ignored);
    if (is_private_folder(place) && is_private_folder(place / name))
      return place / name;
    tried += " " + place.string();
  }
  throw std::runtime_error("no folder for compiled code: each must be this user's with mode 0700:" +
                           tried);
}

// Entries of the cache go when nothing made or used them for so long.
inline constexpr std::chrono::hours kKeptInCache{24 * 14};

}  // namespace meshtrain::test
