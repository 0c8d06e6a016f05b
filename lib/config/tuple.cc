#include "config/tuple.h"

#include <vector>

#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {

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
