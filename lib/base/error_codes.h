// The meaning of each message code, for `meshtrain explain`. Every code of the program is here
// (tests/unit/base/error_codes_test.cc compares).
#pragma once

#include <span>
#include <string_view>

namespace meshtrain {

struct ErrorCode {
  std::string_view code;   // "E204"
  std::string_view title;  // what is wrong, one line
  std::string_view text;   // why it is refused and what to do
};

// All codes in order, warnings ("W113") last.
std::span<const ErrorCode> error_codes();
// nullptr for what is no code.
const ErrorCode* find_error_code(std::string_view code);

}  // namespace meshtrain
