// Losses, metrics and adapted layers that do not fit the model: what `validate` says of the configs
// in compile_cases/, word for word (cases.h).
#include "config/load.h"
#include "errors/cases.h"
#include "train/adapt.h"
#include "train/setup.h"

namespace meshtrain {
namespace {

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
  enter_cases("compile_cases");
  const std::set<std::string> names = case_names({".yaml"});
  CHECK(names.size() >= 13);
  for (const std::string& name : names) {
    check_case(name, problems_of(name + ".yaml"));
  }
}

}  // namespace meshtrain
