// Escapes text for HTML that is also well-formed XML.
#pragma once

#include <string>
#include <string_view>

namespace meshtrain {

// For element content and attribute values. Control characters and bytes that are no UTF-8 become
// U+FFFD.
std::string html_text(std::string_view text);

// <data value="0.39215686917304993">0.3922</data>: the whole number behind a short one.
std::string html_number(double value);
// At most five significant digits: "0.3922", "12,345", "1e-07", "nan".
std::string short_number(double value);

// "1.2 s", "3 min 20 s", "2 h 5 min"
std::string duration_text(double seconds);

}  // namespace meshtrain
