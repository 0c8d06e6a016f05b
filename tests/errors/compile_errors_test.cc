// What `validate` says, word for word (cases.h), of losses, metrics and adapted layers that do not
// fit the model (compile_cases/), and of meshes and layouts that fit neither it nor the batch
// (layout_cases/).
#include "config/load.h"
#include "engine/adapt.h"
#include "engine/setup.h"
#include "errors/load_options.h"

namespace meshtrain {
namespace {

std::string problems_of(const std::string& name) {
  try {
    const Config config = load_config(case_options(name));
    const Setup setup(config, nullptr);
    Diagnostics found;
    check_adaptation(setup.model(), found);
    return found.num_errors() == 0 ? "no problem\n" + setup.warnings().render() : found.render();
  } catch (const ConfigError& e) {
    return e.diagnostics().render();
  }
}

void check_cases(const std::string& folder, size_t least) {
  enter_cases(folder);
  const std::set<std::string> names = case_names({".yaml"});
  CHECK(names.size() >= least);
  for (const std::string& name : names) {
    check_case(name, problems_of(name));
  }
}

}  // namespace

TEST_CASE("what does not fit the model is refused with its exact message") {
  check_cases("compile_cases", 13);
}

TEST_CASE("what is wrong with mesh and batch and layouts is said at once") {
  check_cases("layout_cases", 6);
}

}  // namespace meshtrain
