#include "base/python_text.h"

#include <fmt/format.h>

#include <cmath>

namespace meshtrain {

std::string python_float(double value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  }
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace meshtrain
