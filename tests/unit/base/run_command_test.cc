#include "base/run_command.h"

#include <doctest/doctest.h>

#include <cstdlib>

namespace meshtrain {
namespace {

TEST_CASE("run_command: a command gets the input, and no variable that is left out") {
  CHECK(run_command({"sh", "-c", "read line; test \"$line\" = 'a b'"}, "a b\n", 10) == "");
  ::setenv("MESHTRAIN_TEST_RANK", "1", 1);
  ::setenv("MESHTRAIN_TEST_OTHER", "2", 1);
  const std::vector<std::string> words = {
      "sh", "-c", "test -z \"$MESHTRAIN_TEST_RANK\" && test \"$MESHTRAIN_TEST_OTHER\" = 2"};
  CHECK(run_command(words, "", 10) == "it ended with code 1");
  CHECK(run_command(words, "", 10, {"MESHTRAIN_TEST_RANK="}) == "");
  CHECK(run_command(words, "", 10, {"MESHTRAIN_TEST_"}) == "it ended with code 1");
}

TEST_CASE("run_command: says how a command failed") {
  CHECK(run_command({"no-such-program-anywhere"}, "", 10).find("cannot be started") !=
        std::string::npos);
  CHECK(run_command({"sh", "-c", "kill -9 $$"}, "", 10) == "signal 9 ended it");
  CHECK(run_command({"sleep", "20"}, "", 0.2).find("0.2 s") != std::string::npos);
}

}  // namespace
}  // namespace meshtrain
