#include "config/split.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

bool is_slice_end(std::string_view text) {
  if (!ends_with(text, "%")) {
    return text.empty() || try_integer(text).has_value();
  }
  const std::optional<int64_t> percent = try_integer(trim(text.substr(0, text.size() - 1)));
  return percent && *percent >= -100 && *percent <= 100;
}

}  // namespace

std::optional<std::string> normal_slice(std::string_view text) {
  text = trim(text);
  if (!starts_with(text, "[") || !ends_with(text, "]")) {
    return std::nullopt;
  }
  const std::vector<std::string> ends = split(text.substr(1, text.size() - 2), ':');
  if (ends.size() != 2 || !is_slice_end(trim(ends[0])) || !is_slice_end(trim(ends[1]))) {
    return std::nullopt;
  }
  return fmt::format("[{}:{}]", trim(ends[0]), trim(ends[1]));
}

SplitString parse_split(std::string_view text, std::span<const std::string> splits) {
  SplitString out;
  for (const std::string& part : split(text, '+')) {
    const std::string_view whole = trim(part);
    const size_t bracket = std::min(whole.find('['), whole.size());
    const std::string name(trim(whole.substr(0, bracket)));
    if (std::find(splits.begin(), splits.end(), name) == splits.end()) {
      out.problem = fmt::format("there is no split `{}`; there are {}", name, join(splits, ", "));
      return out;
    }
    std::string slice;
    if (bracket < whole.size()) {
      const std::optional<std::string> found = normal_slice(whole.substr(bracket));
      if (!found) {
        out.problem = fmt::format("`{}` is no slice", whole.substr(bracket));
        return out;
      }
      slice = *found;
    }
    out.parts.push_back({name, slice});
  }
  return out;
}

}  // namespace meshtrain
