// The variables of the environment that this program reads, each with its meaning: for `--help`,
// for `explain`, and to tell a misspelled one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

struct EnvironmentName {
  enum class Reader {
    kUser,       // set by people; `--help` lists it
    kDeveloper,  // names another build of a part of the program
    kProgram,    // set by this program for processes that it starts
    kTests,      // of the project's own tests and scripts
  };

  std::string_view name;  // "MESHTRAIN_TEST_*": all that begin so
  Reader reader = Reader::kUser;
  std::string_view text;  // what it does, without a full stop
};

std::span<const EnvironmentName> environment_names();
// nullptr for an unknown name.
const EnvironmentName* find_environment_name(std::string_view name);
// The names of `environment` ("NAME=value", null at its end) that begin with MESHTRAIN_ and are
// unknown, sorted.
std::vector<std::string> unknown_environment_names(const char* const* environment);

}  // namespace meshtrain
