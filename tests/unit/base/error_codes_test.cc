// Every code that the program can say is explained, and nothing else is.
#include "base/error_codes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace meshtrain {
namespace {

std::set<std::string> codes_in_sources() {
  std::set<std::string> codes;
  const std::regex pattern("\"([EW][1-6][0-9][0-9])\"");
  for (const char* folder : {"lib", "app"}) {
    const auto root = std::filesystem::path(MESHTRAIN_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".cc" || entry.path().stem() == "error_codes") {
        continue;
      }
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end;
           ++found) {
        codes.insert((*found)[1]);
      }
    }
  }
  return codes;
}

TEST_CASE("every code of the sources is explained and every explained code is in the sources") {
  const std::set<std::string> used = codes_in_sources();
  REQUIRE(used.size() > 80);
  std::set<std::string> explained;
  for (const ErrorCode& entry : error_codes()) {
    CHECK(explained.insert(std::string(entry.code)).second);
    CHECK_FALSE(entry.title.empty());
    CHECK(entry.title.back() != '.');
    REQUIRE_FALSE(entry.text.empty());
    CHECK(entry.text.back() == '.');
  }
  for (const std::string& code : used) {
    CHECK_MESSAGE(explained.count(code) == 1, code << " is not explained");
  }
  for (const std::string& code : explained) {
    CHECK_MESSAGE(used.count(code) == 1, code << " is said by nothing");
  }
  CHECK(find_error_code("E204") != nullptr);
  CHECK(find_error_code("E999") == nullptr);
}

}  // namespace
}  // namespace meshtrain
