// Enumerations that a file or a command line names by words. The words stand beside the
// enumerators, in their order:
//
//   enum class Remainder : uint8_t { kKeep, kDrop };
//   constexpr auto words(Remainder) { return word_list("keep", "drop"); }
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

template <class... Words>
constexpr std::array<std::string_view, sizeof...(Words)> word_list(Words... each) {
  return {each...};
}

template <class E>
constexpr std::string_view word_of(E value) {
  return words(value)[static_cast<size_t>(value)];
}

template <class E>
std::vector<std::string> words_of() {
  const auto all = words(E{});
  return {all.begin(), all.end()};
}

template <class E>
constexpr std::optional<E> find_word_of(std::string_view word) {
  const auto all = words(E{});
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == word) {
      return static_cast<E>(i);
    }
  }
  return std::nullopt;
}

}  // namespace meshtrain
