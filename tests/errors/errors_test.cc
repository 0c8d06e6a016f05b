// Every wrong config of cases/ and its exact message. A case is NAME.txt, the expected text of all
// problems, with NAME.yaml, or with the words of a command line in NAME.args:
//
//   file base.yaml            a config file instead of NAME.yaml; several are merged
//   override fit.epochs=ten
//   flag --mesh distribution.device_mesh.shape 2x
//   profile debug
//
// cases.h says what a mismatch does.
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "config/load.h"
#include "errors/cases.h"

namespace meshtrain {
namespace {

void read_args(const std::string& path, LoadOptions& options) {
  std::istringstream lines(test::read_text(path));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind >> std::ws;
    std::string rest;
    std::getline(words, rest);
    if (kind == "file") {
      options.files.push_back(rest);
    } else if (kind == "override") {
      options.overrides.push_back(rest);
    } else if (kind == "profile") {
      options.profile = rest;
    } else if (kind == "flag") {
      std::istringstream parts(rest);
      std::string flag;
      std::string key;
      std::string value;
      parts >> flag >> key >> value;
      options.flag_names.push_back(flag);
      options.flags.emplace_back(key, value);
    } else {
      FAIL("unknown line in " << path << ": " << line);
    }
  }
}

std::string problems_of(const LoadOptions& options) {
  try {
    return "no problem\n" + load_config(options).warnings.render();
  } catch (const ConfigError& e) {
    return e.diagnostics().render();
  }
}

}  // namespace

TEST_CASE("Wrong configs: each is refused with its exact message") {
  enter_cases("cases");
  unsetenv("MESHTRAIN_TEST_UNSET");
  std::set<std::string> names = case_names({".yaml", ".args", ".txt"});
  // These are only there to be extended.
  std::erase_if(names, [](const std::string& name) { return name.starts_with("base_"); });
  CHECK(names.size() >= 60);
  for (const std::string& name : names) {
    CAPTURE(name);
    LoadOptions options;
    if (std::filesystem::exists(name + ".args")) {
      read_args(name + ".args", options);
    }
    if (std::filesystem::exists(name + ".yaml")) {
      options.files.insert(options.files.begin(), name + ".yaml");
    }
    check_case(name, problems_of(options));
  }
}

}  // namespace meshtrain
