#include "config/refused.h"

#include <algorithm>

namespace meshtrain {

bool is_refused(const Diagnostics& problems, const ConfigObject& object,
                std::string_view argument) {
  const std::string place = object.loc_of(argument).to_string();
  return std::any_of(
      problems.list().begin(), problems.list().end(), [&](const Diagnostic& problem) {
        return problem.severity == Severity::kError && problem.loc.to_string() == place;
      });
}

}  // namespace meshtrain
