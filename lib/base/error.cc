#include "base/error.h"

#include <cstring>

namespace meshtrain {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  const char* short_file = std::strstr(file, "lib/");
  throw InternalError(fmt::format("internal error: {}:{}: `{}` does not hold{}{}",
                                  short_file ? short_file : file, line, condition,
                                  message.empty() ? "" : ": ", message));
}

}  // namespace meshtrain
