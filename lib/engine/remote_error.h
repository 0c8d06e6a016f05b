// An error of one process as a text that another one throws again: with its class, its exit code
// and, of a ConfigError, every finding with the line of the config that it points to.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace meshtrain {

std::string serialize_error(const std::exception_ptr& error);
// `who` stands before the message where the error is another rank's: "rank 3 on host h2 (pid 812)".
// An error of no class of ours becomes an Error.
[[noreturn]] void rethrow_error(std::string_view text, const std::string& who = "");

}  // namespace meshtrain
