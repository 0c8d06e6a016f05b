// Every variable of the environment that the sources read or set is in the one list of them.
#include "base/environment_names.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// Names that are read by getenv() or os.environ, quoted alone, set as "NAME=value", or used by a
// script.
std::set<std::string> names_in(const fs::path& file) {
  const std::string extension = file.extension().string();
  const bool is_shell = extension == ".sh" || file.filename() == "run";
  const bool is_source = extension == ".cc" || extension == ".h" || extension == ".py";
  std::set<std::string> names;
  if (!is_shell && !is_source) {
    return names;
  }
  const std::regex pattern(is_shell ? "\\$\\{?(MESHTRAIN_[A-Z_]+)|\n *(MESHTRAIN_[A-Z_]+)="
                                    : "[\"'](MESHTRAIN_[A-Z_]+)(?:=|[\"'])");
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found) {
    names.insert((*found)[1].matched ? (*found)[1] : (*found)[2]);
  }
  return names;
}

TEST_CASE("every variable of the environment that the sources name is known") {
  std::set<std::string> names;
  for (const char* folder : {"lib", "app", "tests", "scripts", ".ci"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(MESHTRAIN_SOURCE_DIR) / folder)) {
      if (entry.is_regular_file() && entry.path().stem() != "environment_names") {
        names.merge(names_in(entry.path()));
      }
    }
  }
  REQUIRE(names.size() > 25);
  std::set<const EnvironmentName*> met;
  for (const std::string& name : names) {
    const EnvironmentName* known = find_environment_name(name);
    CHECK_MESSAGE(known != nullptr, name << " is not in environment_names.cc");
    met.insert(known);
  }
  for (const EnvironmentName& entry : environment_names()) {
    CHECK_FALSE(entry.text.empty());
    CHECK(entry.text.back() != '.');
    if (entry.name.starts_with("MESHTRAIN_")) {  // others are read by many programs
      CHECK_MESSAGE(met.contains(&entry), entry.name << " is read by nothing");
    }
  }
}

TEST_CASE("names that nothing reads are found") {
  const char* const environment[] = {"HOME=/root",
                                     "MESHTRAIN_"
                                     "FOO=1",
                                     "MESHTRAIN_DATA=x",
                                     "MESHTRAIN_"
                                     "DEVICE=",
                                     "MESHTRAIN_TEST_ANY=1",
                                     "MESHTRAINS=1",
                                     nullptr};
  CHECK(unknown_environment_names(environment) == std::vector<std::string>{"MESHTRAIN_"
                                                                           "DEVICE",
                                                                           "MESHTRAIN_"
                                                                           "FOO"});
  CHECK(find_environment_name("MESHTRAIN_DEVICES") != nullptr);
  CHECK(find_environment_name("MESHTRAIN_EMULATOR_BYTES") != nullptr);
  CHECK(find_environment_name("MESHTRAIN_"
                              "EMULATOR") == nullptr);
}

}  // namespace
}  // namespace meshtrain
