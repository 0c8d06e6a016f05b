#include "config/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace meshtrain {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Without the `_` between digits; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

struct Digits {
  bool negative = false;
  std::string_view rest;  // after the sign
};

Digits split_sign(std::string_view text) {
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return {has_sign && text[0] == '-', text.substr(has_sign ? 1 : 0)};
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

enum class Range { kOk, kMalformed, kOverflow };

Range read_int(std::string_view clean, int64_t& value) {
  const Digits digits = split_sign(clean);
  std::string_view rest = digits.rest;
  int base = 10;
  if (starts_with(rest, "0x") || starts_with(rest, "0o")) {
    base = rest[1] == 'x' ? 16 : 8;
    rest.remove_prefix(2);
  }
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') {
    return Range::kMalformed;
  }
  const std::string signed_text = (digits.negative ? "-" : "") + std::string(rest);
  const char* end = signed_text.data() + signed_text.size();
  const auto [stop, error] = std::from_chars(signed_text.data(), end, value, base);
  if (stop != end) {
    return Range::kMalformed;
  }
  return error == std::errc::result_out_of_range ? Range::kOverflow : Range::kOk;
}

Range read_double(std::string_view clean, double& value) {
  const Digits digits = split_sign(clean);
  if (digits.rest.empty() || !(is_digit(digits.rest[0]) || digits.rest[0] == '.')) {
    return Range::kMalformed;  // from_chars would take "inf" and "nan"
  }
  const char* begin = clean.data() + (clean[0] == '+' ? 1 : 0);
  const char* end = clean.data() + clean.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (stop != end) {
    return Range::kMalformed;
  }
  return error == std::errc::result_out_of_range ? Range::kOverflow : Range::kOk;
}

// `1,5` and `1,000`: the same sign for two things, so neither is guessed.
std::optional<ScalarProblem> comma_problem(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.find(',', comma + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view before = split_sign(text.substr(0, comma)).rest;
  const std::string_view after = text.substr(comma + 1);
  if (!all_digits(before) || !all_digits(after)) {
    return std::nullopt;
  }
  return ScalarProblem{
      "E114", "must not contain a comma",
      after.size() == 3 ? fmt::format("write `{0}{1}` or `{0}.{1}`", text.substr(0, comma), after)
                        : fmt::format("write `{}.{}`", text.substr(0, comma), after)};
}

// `012`: 10 or 12, depending on the reader.
std::optional<ScalarProblem> zero_problem(std::string_view text) {
  const std::string_view digits = split_sign(text).rest;
  if (digits.size() < 2 || digits[0] != '0' || !all_digits(digits)) {
    return std::nullopt;
  }
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  const bool is_octal = digits.find_first_of("89") == std::string_view::npos;
  const std::string decimal = fmt::format("write `{}`", digits.substr(first));
  return ScalarProblem{
      "E114", "must not begin with 0",
      is_octal ? fmt::format("{} or `0o{}`", decimal, digits.substr(first)) : decimal};
}

std::string shown(std::string_view text) {
  return text.size() > 40 ? fmt::format("`{}...`", text.substr(0, 40)) : fmt::format("`{}`", text);
}

}  // namespace

ScalarResult<int64_t> parse_integer(std::string_view text) {
  if (auto problem = zero_problem(text)) {
    return {{}, *problem};
  }
  if (auto problem = comma_problem(text)) {
    return {{}, *problem};
  }
  const std::optional<std::string> clean = without_underscores(text);
  int64_t value = 0;
  const Range range = clean ? read_int(*clean, value) : Range::kMalformed;
  if (range == Range::kOk) {
    return {value, {}};
  }
  if (range == Range::kOverflow) {
    return {{}, {"E112", fmt::format("is {}, larger than 2^63-1", shown(text)), ""}};
  }
  const std::optional<double> number = try_number(text);
  std::string label;
  if (number && *number == std::floor(*number) && std::abs(*number) < 1e15) {
    label = fmt::format("write {:.0f}", *number);
  }
  return {{}, {"E112", fmt::format("must be an integer, not {}", shown(text)), label}};
}

ScalarResult<double> parse_number(std::string_view text) {
  if (auto problem = zero_problem(text)) {
    return {{}, *problem};
  }
  if (auto problem = comma_problem(text)) {
    return {{}, *problem};
  }
  const std::string lower = to_lower(split_sign(text).rest);
  for (const std::string_view word : {"nan", ".nan", "inf", ".inf", "infinity"}) {
    if (lower == word) {
      return {{}, {"E113", fmt::format("must be finite, not {}", shown(text)), ""}};
    }
  }
  const std::optional<std::string> clean = without_underscores(text);
  double value = 0;
  const Range range = clean ? read_double(*clean, value) : Range::kMalformed;
  if (range == Range::kOk) {
    return {value, {}};
  }
  if (range == Range::kOverflow) {
    const size_t exponent = lower.find('e');
    const bool is_tiny =
        exponent != std::string::npos && lower.find('-', exponent) != std::string::npos;
    return {{},
            {"E113",
             is_tiny ? fmt::format("is {}, which becomes 0", shown(text))
                     : fmt::format("is {}, larger than the largest number", shown(text)),
             ""}};
  }
  std::string label;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos && try_number(trim(text.substr(0, slash))) &&
      try_number(trim(text.substr(slash + 1)))) {
    label = fmt::format("write `={}`", text);
  }
  return {{}, {"E112", fmt::format("must be a number, not {}", shown(text)), label}};
}

ScalarResult<bool> parse_boolean(std::string_view text) {
  const bool is_yes = text == "true" || text == "True" || text == "TRUE";
  if (is_yes || text == "false" || text == "False" || text == "FALSE") {
    return {is_yes, {}};
  }
  const std::string lower = to_lower(text);
  const auto is_any = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), lower) != words.end();
  };
  const bool is_true = is_any({"yes", "on", "y", "1"});
  if (is_true || is_any({"no", "off", "n", "0"})) {
    return {{},
            {"E114", fmt::format("must be true or false, not {}", shown(text)),
             fmt::format("write `{}`", is_true ? "true" : "false")}};
  }
  return {{}, {"E112", fmt::format("must be true or false, not {}", shown(text)), ""}};
}

std::optional<int64_t> try_integer(std::string_view text) {
  const std::optional<std::string> clean = without_underscores(text);
  int64_t value = 0;
  if (!clean || zero_problem(text) || read_int(*clean, value) != Range::kOk) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> try_number(std::string_view text) {
  const std::optional<std::string> clean = without_underscores(text);
  double value = 0;
  if (!clean || zero_problem(text) || read_double(*clean, value) != Range::kOk) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> list_of_tuple(std::string_view text) {
  text = trim(text);
  if (!starts_with(text, "(") || !ends_with(text, ")")) {
    return std::nullopt;
  }
  std::vector<std::string> entries;
  for (const std::string& entry : split(text.substr(1, text.size() - 2), ',')) {
    const std::string_view number = trim(entry);
    if (number.empty() && !entries.empty()) {
      continue;  // "(3,)"
    }
    if (number != "None" && !try_number(number)) {
      return std::nullopt;
    }
    entries.emplace_back(number == "None" ? "null" : number);
  }
  return "[" + join(entries, ", ") + "]";
}

}  // namespace meshtrain
