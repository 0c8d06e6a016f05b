// Symbolic links.
#pragma once

#include <filesystem>

namespace meshtrain {

// Resolves a chain of links; the folders before it are kept as written. Returns any other path
// unchanged.
inline std::filesystem::path follow_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  }
  return path;
}

}  // namespace meshtrain
