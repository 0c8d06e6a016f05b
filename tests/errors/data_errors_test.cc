// Data files that are wrong, or do not fit what the config says of them: data_cases/NAME.yaml with
// the files that it names, and the exact text of all problems (cases.h).
#include "config/load.h"
#include "data/dataset.h"
#include "errors/cases.h"

namespace meshtrain {
namespace {

// Loads the training data, then those of the validation, reading every row.
std::string problems_of(const std::string& file) {
  try {
    LoadOptions options;
    options.files = {file};
    const Config config = load_config(options);
    for (const auto& source : {config.data.train, config.data.validation}) {
      if (source) {
        const Dataset dataset = load_dataset(*source, config.data);
        for (const auto* arrays : {&dataset.inputs, &dataset.targets}) {
          for (const Dataset::Array& array : *arrays) {
            array.rows->read_range(0, array.rows->size());
          }
        }
      }
    }
    return "no problem\n";
  } catch (const ConfigError& e) {
    return e.diagnostics().render();
  }
}

}  // namespace

TEST_CASE("Wrong data: each is refused with its exact message") {
  enter_cases("data_cases");
  const std::set<std::string> names = case_names({".yaml"});
  CHECK(names.size() >= 20);
  for (const std::string& name : names) {
    CAPTURE(name);
    check_case(name, problems_of(name + ".yaml"));
  }
}

}  // namespace meshtrain
