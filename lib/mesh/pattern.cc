#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "base/text.h"
#include "mesh/layout_map.h"

namespace meshtrain {

namespace {

constexpr size_t kMaxPatternBytes = 4096;
// Enough for any sensible pattern on any path; `(a+)+` on sixty letters stops after milliseconds.
constexpr uint32_t kMatchLimit = 200'000;
constexpr uint32_t kDepthLimit = 20'000;
constexpr uint32_t kHeapLimitKib = 16 * 1024;

template <auto kFree>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;

std::string reason(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

[[noreturn]] void invalid(std::string_view regex, const SourceLoc& loc, int code, size_t offset) {
  ConfigError problem("E201", loc,
                      fmt::format("`{}` is not a regular expression: {} at character {}", regex,
                                  reason(code), offset + 1));
  if (starts_with(regex, "*")) {
    problem.with_label(fmt::format("did you mean `.{}`?", regex));
  }
  problem.help(
      "keys are variable paths or regular expressions in Python's syntax, such as "
      "`.*dense.*kernel`; write `\\(` for a bracket that is meant literally");
  throw problem;
}

struct Matcher {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  Matcher() {
    MESHTRAIN_CHECK(data != nullptr && context != nullptr, "no memory for a match");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  }
};

}  // namespace

struct Pattern::Impl {
  std::string regex;
  SourceLoc loc;
  Code code;
};

Pattern::Pattern(std::string_view regex, SourceLoc loc) {
  if (regex.size() > kMaxPatternBytes) {
    throw ConfigError("E201", std::move(loc),
                      fmt::format("regular expression of {} characters; the limit is {}",
                                  regex.size(), kMaxPatternBytes));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                          PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          nullptr));
  if (code == nullptr) {
    invalid(regex, loc, error, offset);
  }
  impl_ = std::make_shared<const Impl>(Impl{std::string(regex), std::move(loc), std::move(code)});
}

bool Pattern::match(std::string_view text, bool whole) const {
  thread_local const Matcher matcher;
  const uint32_t options = whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;
  // An empty view may have no address, which PCRE2 refuses.
  const char* begin = text.empty() ? "" : text.data();
  const int result =
      pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(begin), text.size(), 0, options,
                  matcher.data.get(), matcher.context.get());
  if (result == PCRE2_ERROR_NOMATCH) {
    return false;
  }
  if (result < 0) {
    throw ConfigError("E201", impl_->loc,
                      fmt::format("matching `{}` against `{}` was given up: {}", impl_->regex, text,
                                  reason(result)))
        .help("nested repeats such as `(a+)+` take exponential time; write the inner one once");
  }
  return true;
}

bool Pattern::full_match(std::string_view text) const {
  return match(text, true);
}
bool Pattern::search(std::string_view text) const {
  return match(text, false);
}

}  // namespace meshtrain
