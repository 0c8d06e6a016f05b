#include "record/report/html.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// With U+FFFD in the place of what is no UTF-8.
std::string valid_utf8(std::string_view text) {
  const std::string quoted =
      json_text(nlohmann::json(text), -1, nlohmann::json::error_handler_t::replace);
  return parse_json(quoted).get<std::string>();
}

}  // namespace

std::string html_text(std::string_view text) {
  constexpr const char* kReplacement = "\xef\xbf\xbd";
  std::string out;
  const std::string valid = valid_utf8(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const char c = valid[i];
    const std::string_view three = std::string_view(valid).substr(i, 3);
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '\t':
      case '\n':
        out += c;
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += kReplacement;
        } else if (three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf") {  // no XML characters
          out += kReplacement;
          i += 2;
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) {
    return format_shortest(value);
  }
  if (value == std::floor(value) && std::abs(value) < 1e9) {
    return format_thousands(static_cast<int64_t>(value));
  }
  return fmt::format("{:.{}g}", value, std::abs(value) < 1 ? 4 : 5);
}

std::string html_number(double value) {
  if (!std::isfinite(value)) {
    return "\xe2\x80\x93";  // metrics.jsonl has null for NaN and infinity
  }
  const double size = std::abs(value);
  const bool plain = size >= 1e-3 && size < 1e4 && value != std::floor(value);
  return fmt::format(R"(<data value="{}">{}</data>)", format_shortest(value),
                     plain ? fmt::format("{:.4f}", value) : short_number(value));
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (seconds < 0.9995) {
    return fmt::format("{:.0f} ms", seconds * 1e3);
  }
  if (seconds < 59.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  if (whole < 3600) {
    return fmt::format("{} min {} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace meshtrain
