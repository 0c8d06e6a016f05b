// Serializes an error of one process, so that another process can rethrow it with its class, exit
// code and, for a ConfigError, all findings with their places in the config.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace meshtrain {

std::string serialize_error(const std::exception_ptr& error);
// Rethrows a serialized error. `who` precedes the message when the error is another rank's: "rank 3
// on host h2 (pid 812)". A foreign exception class becomes Error.
[[noreturn]] void rethrow_error(std::string_view text, const std::string& who = "");

}  // namespace meshtrain
