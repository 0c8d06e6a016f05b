// Models whose layers do not fit their inputs: each file of model_cases/ holds many, all reported
// at once with layer, line, shapes and fix. A mismatch writes NAME.new beside the case; once
// reviewed it becomes NAME.txt.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "config/load.h"
#include "doctest/doctest.h"
#include "nn/model.h"

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
  LoadOptions options;
  options.files = {file};
  options.require_data = false;
  try {
    const Config config = load_config(options);
    Diagnostics diagnostics;
    const Model model(config.model, DType::kFloat32, diagnostics);
    return diagnostics.has_errors() ? diagnostics.render() : "no problem\n";
  } catch (const ConfigError& e) {
    return e.diagnostics().render();
  }
}

TEST_CASE("Layers that do not fit their inputs are refused with their exact messages") {
  fs::current_path(fs::path(MESHTRAIN_SOURCE_DIR) / "tests" / "errors" / "model_cases");
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(".")) {
    if (entry.path().extension() == ".yaml") {
      names.insert(entry.path().stem().string());
    }
  }
  CHECK(names.size() >= 5);
  for (const std::string& name : names) {
    CAPTURE(name);
    const std::string found = problems_of(name + ".yaml");
    const bool equal = found == read_text(name + ".txt");
    CHECK(equal);
    if (!equal) {
      std::ofstream(name + ".new", std::ios::binary) << found;
    }
  }
}

}  // namespace
}  // namespace meshtrain
