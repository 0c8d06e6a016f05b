// Losses, metrics and adapted layers that do not fit the model: what `validate` says of the configs
// in compile_cases/, word for word. A mismatch writes NAME.new beside the case; once reviewed it
// becomes NAME.txt.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "config/load.h"
#include "doctest/doctest.h"
#include "train/adapt.h"
#include "train/setup.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string problems_of(const std::string& file) {
  try {
    LoadOptions options;
    options.files = {file};
    const Config config = load_config(options);
    const Setup setup(config, nullptr);
    Diagnostics found;
    check_adaptation(setup.model(), found);
    return found.num_errors() == 0 ? "no problem\n" : found.render();
  } catch (const ConfigError& e) {
    return e.diagnostics().render();
  }
}

}  // namespace

TEST_CASE("what does not fit the model is refused with its exact message") {
  fs::current_path(fs::path(MESHTRAIN_SOURCE_DIR) / "tests" / "errors" / "compile_cases");
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(".")) {
    if (entry.path().extension() == ".yaml") {
      names.insert(entry.path().stem().string());
    }
  }
  CHECK(names.size() >= 13);
  for (const std::string& name : names) {
    CAPTURE(name);
    const std::string found = problems_of(name + ".yaml");
    const std::string expected = read_text(name + ".txt");
    CHECK(found == expected);
    if (found != expected) {
      std::ofstream(name + ".new", std::ios::binary) << found;
    }
  }
}

}  // namespace meshtrain
