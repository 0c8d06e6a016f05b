// Splits texts by the regexes of tokenizers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace meshtrain {

// Which texts are words: the matches of a regex, the rest, which is the texts between them, or
// both.
enum class Kept : uint8_t { kAll, kMatches, kRest };

struct WordSplit {
  std::string regex;
  Kept kept = Kept::kAll;
};

// Splits texts by a regex of Oniguruma, which PCRE2 reads: `\s` and `\w` have Oniguruma's
// characters. Thread-safe, moves.
class SplitPattern {
 public:
  // Throws ConfigError E318 when the regex is wrong, E327 when it can match no character or has
  // what PCRE2 reads otherwise: classes within classes, `&&`, `\h`. `path` is of the file that has
  // it.
  SplitPattern(const WordSplit& split, const std::string& path);

  // Calls `use` for each word in order. `text` must be UTF-8. Throws ConfigError E318 when the
  // match exceeds PCRE2's limits.
  void for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
  Kept kept_;
};

}  // namespace meshtrain
