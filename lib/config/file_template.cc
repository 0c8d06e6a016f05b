#include "config/file_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "config/arithmetic.h"
#include "config/expression_parser.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxLength = 4096;
constexpr int kMaxWidth = 100;  // of a number

// The widths and precisions within a format are bounded before anything is made of them.
bool is_small(std::string_view format) {
  for (size_t i = 0; i < format.size(); ++i) {
    size_t end = i;
    while (end < format.size() && std::isdigit(static_cast<unsigned char>(format[end])) != 0) {
      ++end;
    }
    if (end > i + 3 || (end > i && std::stoi(std::string(format.substr(i, end - i))) > kMaxWidth)) {
      return false;
    }
    i = std::max(i, end);
  }
  return true;
}

// Placeholders that every save can fill, beside the logs.
bool is_counter(std::string_view name) {
  return name == "epoch" || name == "batch" || name == "step";
}

}  // namespace

FileTemplate::FileTemplate(std::string_view text) {
  const auto fail = [](size_t at, std::string message) {
    throw ExprError{at, std::move(message), {}, {}};
  };
  if (text.size() > kMaxLength) {
    fail(0, "the path is too long");
  }
  std::string literal;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool twice = at + 1 < text.size() && text[at + 1] == c;
    if ((c == '{' || c == '}') && twice) {
      literal += c;
      ++at;
    } else if (c == '}') {
      fail(at, "`}` without `{`; write `}}` for the sign itself");
    } else if (c != '{') {
      literal += c;
    } else {
      const size_t end = text.find('}', at);
      if (end == std::string_view::npos) {
        fail(at, "`{` is not closed");
      }
      const std::string_view inner = text.substr(at + 1, end - at - 1);
      const size_t colon = std::min(inner.find(':'), inner.size());
      Part part{.text = std::string(inner.substr(0, colon)), .is_name = true};
      const std::string_view format = inner.substr(std::min(colon + 1, inner.size()));
      if (!is_name_alone(part.text)) {
        fail(at, fmt::format("`{{{}}}` names no value", inner));
      }
      const char type = format.empty() ? '\0' : format.back();
      part.shows_integer = type == 'd' || (is_counter(part.text) && std::isalpha(type) == 0);
      part.format = fmt::format("{{:{}}}", format);
      try {
        if (!is_small(format) || format.find('{') != std::string_view::npos) {
          throw fmt::format_error("");
        }
        formatted(part, is_counter(part.text) ? Value(int64_t{1}) : Value(0.5));
      } catch (const fmt::format_error&) {
        fail(at, fmt::format("`{}` is no format of {}", format,
                             is_counter(part.text) ? "an integer" : "a number"));
      }
      if (!literal.empty()) {
        parts_.push_back({.text = std::exchange(literal, {})});
      }
      parts_.push_back(std::move(part));
      at = end;
    }
  }
  if (!literal.empty()) {
    parts_.push_back({.text = std::move(literal)});
  }
}

std::string FileTemplate::formatted(const Part& part, const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return part.shows_integer
               ? fmt::format(fmt::runtime(part.format), *integer)
               : fmt::format(fmt::runtime(part.format), static_cast<double>(*integer));
  }
  if (part.shows_integer) {
    throw fmt::format_error("an integer's format");
  }
  const double number = std::get<double>(value);
  return part.format == "{:}" ? python_float(number)
                              : fmt::format(fmt::runtime(part.format), number);
}

std::vector<std::string> FileTemplate::names() const {
  std::vector<std::string> out;
  for (const Part& part : parts_) {
    if (part.is_name) {
      out.push_back(part.text);
    }
  }
  return out;
}

std::string FileTemplate::fill(const std::function<Value(const std::string& name)>& value) const {
  std::string out;
  for (const Part& part : parts_) {
    out += part.is_name ? formatted(part, value(part.text)) : part.text;
  }
  return out;
}

std::optional<std::string> FileTemplate::folder() const {
  std::string first = parts_.empty() || parts_[0].is_name ? "" : parts_[0].text;
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (parts_[i].text.find('/') != std::string::npos) {
      return std::nullopt;
    }
  }
  const size_t slash = first.rfind('/');
  return slash == std::string::npos ? "" : first.substr(0, std::max<size_t>(slash, 1));
}

bool FileTemplate::matches(size_t index, std::string_view rest,
                           std::optional<int64_t>& epoch) const {
  if (index == parts_.size()) {
    return rest.empty();
  }
  const Part& part = parts_[index];
  if (!part.is_name) {
    return starts_with(rest, part.text) && matches(index + 1, rest.substr(part.text.size()), epoch);
  }
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  if (part.text == "epoch") {
    const auto end = std::find_if_not(rest.begin(), rest.end(), is_digit);
    const std::string digits(rest.begin(), end);
    const auto number = try_integer(digits.substr(
        std::min(digits.find_first_not_of('0'), digits.empty() ? 0 : digits.size() - 1)));
    if (number && matches(index + 1, rest.substr(digits.size()), epoch)) {
      epoch = number;
      return true;
    }
    return false;
  }
  for (size_t length = rest.size(); length > 0; --length) {
    if (rest.substr(0, length).find('/') == std::string_view::npos &&
        matches(index + 1, rest.substr(length), epoch)) {
      return true;
    }
  }
  return false;
}

std::optional<int64_t> FileTemplate::epoch_in(std::string_view path) const {
  std::optional<int64_t> epoch;
  return matches(0, path, epoch) ? epoch : std::nullopt;
}

}  // namespace meshtrain
