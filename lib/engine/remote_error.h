// An error of one process as a text that another can throw again: with its kind, its exit code and,
// of a ConfigError, every finding with the line of the config that it points to.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace meshtrain {

// `who` stands before the message where it is another's: "rank 3 on host h2 (pid 812)".
std::string serialize_error(const std::exception_ptr& error);
[[noreturn]] void rethrow_error(std::string_view told, const std::string& who = "");

}  // namespace meshtrain
