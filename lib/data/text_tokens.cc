#include "data/text_tokens.h"

#include <array>

#include "base/utf8.h"

namespace meshtrain {
namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";
constexpr std::string_view kPunctuation = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // of bytes that are no character

using Bytes = std::array<bool, 256>;  // those that belong to a set

constexpr Bytes bytes_of(std::string_view characters) {
  Bytes out{};
  for (const char c : characters) {
    out[static_cast<unsigned char>(c)] = true;
  }
  return out;
}

constexpr Bytes kIsSpace = bytes_of(kSpaces), kIsPunctuation = bytes_of(kPunctuation);

bool belongs(char c, const Bytes& set) {
  return set[static_cast<unsigned char>(c)];
}

std::string standardized(std::string_view text, const TokenRules& rules) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (rules.strips_punctuation && belongs(c, kIsPunctuation)) {
      continue;
    }
    out += rules.lowers && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !belongs(text[end], kIsSpace)) {
      ++end;
    }
    if (end > at) {
      out.emplace_back(text.substr(at, end - at));
    }
    at = end + 1;
  }
  return out;
}

std::vector<std::string> characters_in(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    out.emplace_back(length == 0 ? kReplacement : text.substr(at, length));
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::vector<std::string> runs_of(const std::vector<std::string>& tokens,
                                 const std::vector<int64_t>& sizes) {
  std::vector<std::string> out;
  for (const int64_t size : sizes) {
    for (size_t first = 0; first + static_cast<size_t>(size) <= tokens.size(); ++first) {
      std::string run = tokens[first];
      for (size_t i = 1; i < static_cast<size_t>(size); ++i) {
        run += ' ' + tokens[first + i];
      }
      out.push_back(std::move(run));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> tokens_of(std::string_view text, const TokenRules& rules) {
  const std::string plain = standardized(text, rules);
  std::vector<std::string> tokens = rules.split == TokenRules::Split::kWhitespace ? words_in(plain)
                                    : rules.split == TokenRules::Split::kCharacter
                                        ? characters_in(plain)
                                        : std::vector<std::string>{plain};
  return rules.ngrams.empty() ? tokens : runs_of(tokens, rules.ngrams);
}

}  // namespace meshtrain
