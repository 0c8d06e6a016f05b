#include "base/suggest.h"

#include "base/text.h"

namespace meshtrain {

bool suggest(Diagnostic& problem, std::string_view given, std::span<const std::string> names) {
  const auto nearest = nearest_name(given, names);
  if (nearest) {
    problem.with_label(fmt::format("did you mean `{}`?", *nearest));
  }
  return nearest.has_value();
}

std::string known_names(std::string_view given, std::span<const std::string> names) {
  constexpr size_t kMost = 20, kShown = 8;
  return names.size() <= kMost ? join(names, ", ")
                               : join(nearest_names(given, names, kShown), ", ") + ", ...";
}

}  // namespace meshtrain
