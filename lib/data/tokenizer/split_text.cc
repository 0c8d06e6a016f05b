#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/split_text.h"

#include <pcre2.h>

#include <utility>

#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxRegexBytes = 4096;

// The characters of `\s` and `\w` in Oniguruma, as parts of a class. PCRE2's own \s has U+180E,
// which Unicode's White_Space has not had since version 6.3, and its \w has no marks. Each ends
// with a range: a `-` behind it is a character.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{2000}-\x{200a})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nl}\p{Nd}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189})";
// Outside of a class Oniguruma's \w has the fractions and superscripts of Latin-1, too.
constexpr std::string_view kLatinNumbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

// `\` and the letter, or what has its meaning; empty for a letter that PCRE2 reads otherwise.
std::string escaped(char letter, bool is_in_class) {
  const std::string space = fmt::format("[{}]", kWhiteSpace),
                    word = fmt::format("[{}{}]", kWord, kLatinNumbers);
  switch (letter) {
    case 's':
      return is_in_class ? std::string(kWhiteSpace) : space;
    case 'S':
      return is_in_class ? "\\S" : fmt::format("[^{}]", kWhiteSpace);
    case 'w':
      return is_in_class ? std::string(kWord) : word;
    case 'W':
      return is_in_class ? "" : fmt::format("[^{}{}]", kWord, kLatinNumbers);
    case 'b':
      return is_in_class ? "\\b" : fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
    case 'B':
      return is_in_class ? "" : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
    case 'h':
    case 'H':
    case 'v':
    case 'V':
    case 'Q':
      return "";
    default:
      return {'\\', letter};
  }
}

// The characters of `[:name:]`; empty for a name that stands for others in PCRE2.
std::string_view posix_class(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
      {"[:digit:]", R"(\p{Nd})"},
      {"[:punct:]", R"(\p{P}\p{S})"},
      {"[:space:]", kWhiteSpace},
      {"[:word:]", kWord},
      {"[:xdigit:]", "0-9A-Fa-f"}};
  for (const auto& [known, characters] : kClasses) {
    if (name == known)
      return characters;
  }
  return "";
}

// Oniguruma's regex as one of PCRE2. Throws E327 for what PCRE2 would read in another way.
std::string in_syntax_of_pcre2(std::string_view regex, const std::string& path) {
  std::string out;
  bool is_in_class = false;
  size_t first = 0;  // the place in the class where `]` is a character
  for (size_t at = 0; at < regex.size();) {
    const std::string_view rest = regex.substr(at);
    std::string_view part = rest.substr(0, 1);  // what is read in this step
    std::string meaning(part);
    if (rest[0] == '\\' && rest.size() > 1) {
      part = rest.substr(0, 2);
      meaning = escaped(rest[1], is_in_class);
    } else if (!is_in_class && rest.starts_with("(?")) {
      part = rest.substr(0, rest.find_first_not_of("imsx-", 2));
      const bool moves_lines = part.find_first_of("ms") != part.npos;  // `m` is PCRE2's `s`
      meaning = moves_lines ? "" : part;
    } else if (!is_in_class && rest[0] == '[') {
      is_in_class = true;
      part = rest.substr(0, rest.starts_with("[^") ? 2 : 1);
      meaning = part;
      first = at + part.size();
    } else if (is_in_class && rest[0] == ']') {
      is_in_class = at == first;
    } else if (is_in_class && rest[0] == '[') {
      const size_t end = rest.find(":]");
      part = rest.substr(0, rest.starts_with("[:") && end != rest.npos ? end + 2 : 1);
      meaning = posix_class(part);
    } else if (is_in_class && rest.starts_with("&&")) {
      part = rest.substr(0, 2);
      meaning.clear();
    }
    if (meaning.empty()) {
      read_error("E327", path, "the pattern `{}` has `{}`{}, which is not read", regex, part,
                 is_in_class ? " within a class" : "");
    }
    out += meaning;
    at += part.size();
  }
  return out;
}

std::string reason(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

struct MatchData {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  MatchData() = default;
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
  ~MatchData() { pcre2_match_data_free(data); }
};

}  // namespace

struct SplitPattern::Impl {
  pcre2_code* code = nullptr;
  std::string regex, path;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(const WordSplit& split, const std::string& path) : kept_(split.kept) {
  const std::string& regex = split.regex;
  if (regex.size() > kMaxRegexBytes) {
    read_error("E318", path, "a pattern of {} bytes; the limit is {}", regex.size(),
               kMaxRegexBytes);
  }
  const auto impl = std::make_shared<Impl>();
  impl->regex = regex;
  impl->path = path;
  const std::string text = in_syntax_of_pcre2(regex, path);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Oniguruma's syntax `^` and `$` are the begin and end of a line.
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, nullptr);
  if (impl->code == nullptr) {
    read_error("E318", path, "the pattern `{}` is not a regular expression: {}", regex,
               reason(error));
  }
  uint32_t can_be_empty = 0;
  pcre2_pattern_info(impl->code, PCRE2_INFO_MATCHEMPTY, &can_be_empty);
  if (can_be_empty != 0) {
    read_error("E327", path, "the pattern `{}` can match no character, which is not read", regex);
  }
  // Without a JIT the same code is interpreted.
  pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE);
  impl_ = impl;
}

void SplitPattern::for_each_word(std::string_view text,
                                 const std::function<void(std::string_view)>& use) const {
  thread_local const MatchData match;
  MESHTRAIN_CHECK(match.data != nullptr, "no memory for a match");
  size_t used = 0;   // bytes that were handed over
  size_t start = 0;  // of the next search
  while (start < text.size()) {
    const int result =
        pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.data, nullptr);
    if (result == PCRE2_ERROR_NOMATCH) {
      break;
    }
    if (result < 0) {
      read_error("E318", impl_->path, "matching the pattern `{}` was given up: {}", impl_->regex,
                 reason(result));
    }
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.data);
    // `use` may run another pattern on this thread, which overwrites the match data.
    const size_t begin = ends[0], end = ends[1];
    if (end <= start || begin < used) {  // \K moves the begin
      read_error("E318", impl_->path, "the pattern `{}` moves the begin of a match", impl_->regex);
    }
    if (begin > used && kept_ != Kept::kMatches) {
      use(text.substr(used, begin - used));
    }
    if (kept_ != Kept::kRest) {
      use(text.substr(begin, end - begin));
    }
    used = start = end;
  }
  if (used < text.size() && kept_ != Kept::kMatches) {
    use(text.substr(used));
  }
}

}  // namespace meshtrain
