// Splits texts by the regexes of tokenizers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace meshtrain {

// A regex whose matches, and the texts between them, are words. Syntax is PCRE2's, which agrees
// with Oniguruma's on the patterns of published tokenizers; `\s` is Unicode's White_Space.
// Thread-safe, moves.
class SplitPattern {
 public:
  // Throws ConfigError E318 when the regex is wrong; `path` is of the file that has it.
  SplitPattern(std::string_view regex, const std::string& path);

  // Calls `use` for each word in order. `text` must be UTF-8. Throws ConfigError E318 when the
  // match exceeds PCRE2's limits.
  void for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace meshtrain
