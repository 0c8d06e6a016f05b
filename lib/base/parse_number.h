// A number that is the whole of a text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace meshtrain {

// Nothing where the text is anything else (" 1", "+1", "1x", ""), or does not fit a T. `form`: the
// base of an integer, 10 unless said; the std::chars_format of a float.
template <class T, class... Form>
std::optional<T> parse_number(std::string_view text, Form... form) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, form...);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace meshtrain
