#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace meshtrain {

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) {
      return parts;
    }
    begin = end + 1;
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    out += i == 0 ? std::string_view() : separator;
    out += parts[i];
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string to_snake_case(std::string_view class_name) {
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::string word;
  for (const char c : class_name) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    }
  }
  // An underscore before each upper-case letter followed by lower-case letters, not at the start.
  std::string first;
  for (size_t i = 0; i < word.size(); ++i) {
    if (i > 0 && upper(word[i]) && i + 1 < word.size() && lower(word[i + 1])) {
      first += '_';
    }
    first += word[i];
  }
  // And one between a lower-case letter and an upper-case one (a digit does not count).
  std::string second;
  for (size_t i = 0; i < first.size(); ++i) {
    if (i > 0 && lower(first[i - 1]) && upper(first[i])) {
      second += '_';
    }
    second += first[i];
  }
  return to_lower(second);
}

int edit_distance(std::string_view a, std::string_view b) {
  const size_t n = a.size();
  const size_t m = b.size();
  std::vector<std::vector<int>> d(n + 1, std::vector<int>(m + 1));
  for (size_t i = 0; i <= n; ++i) {
    d[i][0] = static_cast<int>(i);
  }
  for (size_t j = 0; j <= m; ++j) {
    d[0][j] = static_cast<int>(j);
  }
  for (size_t i = 1; i <= n; ++i) {
    for (size_t j = 1; j <= m; ++j) {
      const int substitution = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[n][m];
}

namespace {

// "lr" of "learning_rate", "bn" of "BatchNormalization"
std::string initials(std::string_view name) {
  std::string out;
  for (const std::string& word : split(to_snake_case(name), '_')) {
    out += word.substr(0, 1);
  }
  return out;
}

// How `wanted`, in lower case, is to `name`.
struct Likeness {
  int distance = 0;
  bool is_part = false;  // of the name, or its initials

  Likeness(const std::string& wanted, const std::string& name)
      : distance(edit_distance(wanted, to_lower(name))),
        is_part(wanted.size() > 1 &&
                (to_lower(name).find(wanted) != std::string::npos || initials(name) == wanted)) {}
  bool operator<(const Likeness& other) const {
    return is_part != other.is_part ? is_part : distance < other.distance;
  }
};

}  // namespace

std::optional<std::string> nearest_path(std::string_view path,
                                        std::span<const std::string> candidates) {
  const std::string_view end = path.substr(path.rfind('/') + 1);
  std::vector<std::string> alike;
  for (const std::string& candidate : candidates) {
    if (std::string_view(candidate).substr(candidate.rfind('/') + 1) == end) {
      alike.push_back(candidate);
    }
  }
  if (alike.empty()) {
    return nearest_name(path, candidates);
  }
  return nearest_names(path, alike, 1).front();
}

std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, size_t count) {
  const std::string wanted = to_lower(name.substr(0, 128));
  std::vector<std::pair<Likeness, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    ranked.emplace_back(Likeness(wanted, candidate), candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(count, ranked.size()); ++i) {
    out.push_back(ranked[i].second);
  }
  return out;
}

std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates) {
  const std::string wanted = to_lower(name.substr(0, 128));
  // Of a likely slip: of four letters one is another at most.
  int least = name.size() <= 4 ? 1 : static_cast<int>(name.size()) / 3 + 1;
  const std::string* nearest = nullptr;
  std::vector<std::string> whole;  // that it is a part of
  for (const std::string& candidate : candidates) {
    const Likeness likeness(wanted, candidate);
    if (likeness.distance < least || (likeness.distance == least && nearest == nullptr)) {
      least = likeness.distance;
      nearest = &candidate;
    }
    if (likeness.is_part) {
      whole.push_back(candidate);
    }
  }
  if (nearest != nullptr) {
    return *nearest;
  }
  return whole.size() == 1 ? std::optional(whole[0]) : std::nullopt;
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) {
    return fmt::format("{} B", bytes);
  }
  return value < 9.95 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                      : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string format_thousands(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  const size_t first = digits[0] == '-' ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    out += i > first && (digits.size() - i) % 3 == 0 ? "," : "";
    out += digits[i];
  }
  return out;
}

namespace {
template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}
}  // namespace

std::string format_shortest(double value) {
  return shortest(value);
}
std::string format_shortest(float value) {
  return shortest(value);
}

std::string python_float(double value) {
  if (!std::isfinite(value)) {
    return format_shortest(value);
  }
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace meshtrain
