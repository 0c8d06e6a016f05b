// Models whose layers do not fit their inputs: each file of model_cases/ holds many, all reported
// at once with layer, line, shapes and fix, word for word (cases.h).
#include "config/load.h"
#include "errors/cases.h"
#include "nn/model.h"

namespace meshtrain {
namespace {

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
  enter_cases("model_cases");
  const std::set<std::string> names = case_names({".yaml"});
  CHECK(names.size() >= 9);
  for (const std::string& name : names) {
    check_case(name, problems_of(name + ".yaml"));
  }
}

}  // namespace
}  // namespace meshtrain
