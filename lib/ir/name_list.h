// Lists of names in one text: Value::sharding_origin and the attributes `of` and `cause` of
// collectives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace meshtrain {

// Names may have commas. The text form of graphs shows ", ".
inline constexpr char kNameSeparator = '\x1f';

inline std::vector<std::string> split_names(std::string_view list) {
  return list.empty() ? std::vector<std::string>() : split(list, kNameSeparator);
}

inline void add_name(std::string& list, std::string_view name) {
  if (!list.empty()) {
    list += kNameSeparator;
  }
  list += name;
}

inline std::string name_list(const std::vector<std::string>& names) {
  return join(names, std::string_view(&kNameSeparator, 1));
}

}  // namespace meshtrain
