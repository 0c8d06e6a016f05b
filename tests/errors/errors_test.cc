// Every wrong config of cases/ and its exact message. A case is NAME.txt, the expected text of all
// problems, with NAME.yaml, or with the words of a command line in NAME.args:
//
//   file base.yaml            a config file instead of NAME.yaml; several are merged
//   override fit.epochs=ten
//   flag --mesh distribution.device_mesh.shape 2x
//   profile debug
//
// A mismatch writes NAME.new beside the case; once reviewed it becomes NAME.txt.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "config/load.h"
#include "doctest/doctest.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void read_args(const std::string& path, LoadOptions& options) {
  std::istringstream lines(read_text(path));
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
  fs::current_path(fs::path(MESHTRAIN_SOURCE_DIR) / "tests" / "errors" / "cases");
  unsetenv("MESHTRAIN_TEST_UNSET");
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(".")) {
    const std::string extension = entry.path().extension().string();
    // Files named base_* are only there to be extended.
    const bool is_base = entry.path().stem().string().substr(0, 5) == "base_";
    if ((extension == ".yaml" || extension == ".args" || extension == ".txt") && !is_base) {
      names.insert(entry.path().stem().string());
    }
  }
  CHECK(names.size() >= 60);
  for (const std::string& name : names) {
    CAPTURE(name);
    LoadOptions options;
    if (fs::exists(name + ".args")) {
      read_args(name + ".args", options);
    }
    if (fs::exists(name + ".yaml")) {
      options.files.insert(options.files.begin(), name + ".yaml");
    }
    const std::string found = problems_of(options);
    const std::string expected = read_text(name + ".txt");
    CHECK(found == expected);
    if (found != expected) {
      std::ofstream(name + ".new", std::ios::binary) << found;
    }
  }
}

}  // namespace meshtrain
