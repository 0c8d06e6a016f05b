// Results that are costly to find again, kept in a folder: machine code, chosen algorithms.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace meshtrain::cuda {

// A folder with a file for every entry. A file that is damaged counts as missing, a folder that
// cannot be written as one where nothing is found; neither is an error.
class Cache {
 public:
  // "" keeps nothing. The folder is made with the first entry.
  explicit Cache(std::string folder) : folder_(std::move(folder)) {}
  bool keeps() const { return !folder_.empty(); }

  // `kind` is the beginning of the file's name; `key` is everything that the entry depends on.
  std::optional<std::string> find(std::string_view kind, std::string_view key) const;
  void store(std::string_view kind, std::string_view key, std::string_view data) const;

 private:
  std::string file(std::string_view kind, std::string_view key) const;
  std::string folder_;
};

}  // namespace meshtrain::cuda
