// Every wrong config of cases/ and its exact message. A case is NAME.txt, the expected text of all
// problems, with NAME.yaml, or with the words of a command line in NAME.args (load_options.h);
// cases.h says what a mismatch does.
#include <cstdlib>
#include <filesystem>

#include "config/load.h"
#include "errors/cases.h"
#include "errors/load_options.h"

namespace meshtrain {
namespace {

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
    check_case(name, problems_of(case_options(name)));
  }
}

}  // namespace meshtrain
