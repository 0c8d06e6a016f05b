// Text of a scalar to the type of its key. YAML's own guesses (yes = true, 010 = 8) play no
// part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace meshtrain {

// What is wrong with a text: code, message with `{}` for the key's name, label beside the carets.
struct ScalarProblem {
  std::string code;
  std::string message;  // "must be an integer"
  std::string label;    // "write 1000"
};

template <class T>
struct ScalarResult {
  std::optional<T> value;
  ScalarProblem problem;
};

// "1_000", "-5", "0x1f", "0o12"; E112 for other text and beyond 64 bits, E114 for leading zeros and
// commas.
ScalarResult<int64_t> parse_integer(std::string_view text);
// "1e-4", ".5", "1_000"; E113 for nan, infinity, overflow, and what is not zero but becomes it.
ScalarResult<double> parse_number(std::string_view text);
// true and false, also True and TRUE, as in YAML 1.1 and 1.2; E114 for yes, on, 1, ...
ScalarResult<bool> parse_boolean(std::string_view text);

// The text as a number, if it is an integer's or a finite number's; nothing else is reported.
std::optional<int64_t> try_integer(std::string_view text);
std::optional<double> try_number(std::string_view text);

// The YAML list that Python's tuple of numbers is here: "[28, 28, 1]" of "(28,28,1)".
std::optional<std::string> list_of_tuple(std::string_view text);

}  // namespace meshtrain
