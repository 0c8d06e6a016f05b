// Reflection over the members of kernel specs.
#pragma once

#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backend/view.h"

namespace meshtrain {

// Inside of a struct: lists its members.
#define MESHTRAIN_FIELDS(...)                              \
  static constexpr std::string_view kFields{#__VA_ARGS__}; \
  auto fields() {                                          \
    return std::tie(__VA_ARGS__);                          \
  }                                                        \
  auto fields() const {                                    \
    return std::tie(__VA_ARGS__);                          \
  }

template <class T>
concept HasFields = requires(T& value) {
  value.fields();
};

// Calls visit(address) for every address in a spec or a member of one.
template <class T, class Visit>
void for_each_address(T& value, const Visit& visit) {
  if constexpr (std::is_pointer_v<T>) {
    visit(value);
  } else if constexpr (std::is_same_v<T, View>) {
    visit(value.data);
  } else if constexpr (std::is_same_v<T, Access>) {
    visit(value.begin);
    visit(value.end);
  } else if constexpr (HasFields<T>) {
    std::apply([&](auto&... members) { (for_each_address(members, visit), ...); }, value.fields());
  } else if constexpr (requires { value[0]; } && !std::is_same_v<T, std::vector<bool>>) {
    for (auto& element : value)
      for_each_address(element, visit);
  }
}

}  // namespace meshtrain
