#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/split_text.h"

#include <pcre2.h>

#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxRegexBytes = 4096;

// PCRE2's own \s has U+180E, which Unicode's White_Space has not had since version 6.3.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string with_white_space(std::string_view regex) {
  std::string out;
  bool is_in_class = false;
  for (size_t at = 0; at < regex.size(); ++at) {
    const char c = regex[at];
    if (c == '\\' && at + 1 < regex.size()) {
      const char escaped = regex[++at];
      if (escaped == 's') {
        out += is_in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      } else if (escaped == 'S' && !is_in_class) {
        out += fmt::format("[^{}]", kWhiteSpace);
      } else {
        out += {c, escaped};
      }
      continue;
    }
    is_in_class = is_in_class ? c != ']' : c == '[';
    out += c;
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

SplitPattern::SplitPattern(std::string_view regex, const std::string& path) {
  if (regex.size() > kMaxRegexBytes) {
    read_error("E318", path, "a pattern of {} bytes; the limit is {}", regex.size(),
               kMaxRegexBytes);
  }
  const auto impl = std::make_shared<Impl>();
  impl->regex = regex;
  impl->path = path;
  const std::string text = with_white_space(regex);
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
    if (begin > used) {
      use(text.substr(used, begin - used));
    }
    use(text.substr(begin, end - begin));
    used = start = end;
  }
  if (used < text.size()) {
    use(text.substr(used));
  }
}

}  // namespace meshtrain
