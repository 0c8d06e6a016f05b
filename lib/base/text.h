// Small helpers for text: joining, nearest names, sizes for people.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

bool starts_with(std::string_view text, std::string_view prefix);
bool ends_with(std::string_view text, std::string_view suffix);
std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string_view trim(std::string_view text);
std::string to_lower(std::string_view text);
bool is_one_of(std::string_view word, std::span<const std::string_view> words);

// Keras' rule for automatic names: "Conv2D" -> "conv2d", "ReLU" -> "re_lu", "RMSprop" ->
// "rm_sprop". Source: Keras naming.to_snake_case; reference cases in tests/unit/base.
std::string to_snake_case(std::string_view class_name);

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, if near enough to be a likely slip; case is ignored first.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);
// The same of paths: one with the same last part comes before all others.
std::optional<std::string> nearest_path(std::string_view path,
                                        std::span<const std::string> candidates);
// Up to `count` candidates, nearest first, without a limit on the distance.
std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, size_t count);

// "1 device", "8 devices".
std::string counted(int64_t number, std::string_view noun);
// "40 B", "613 KiB", "1.2 GiB": 1024-based, at most three significant digits above bytes.
std::string format_bytes(int64_t bytes);
// "269,322"
std::string format_thousands(int64_t number);
// The shortest decimal text that reads back as the same number; "nan" and "inf" as Python has them.
std::string format_shortest(double value);
std::string format_shortest(float value);
// repr(float) of Python: "0.1", "1.0", "1e-05", "nan".
std::string python_float(double value);

}  // namespace meshtrain
