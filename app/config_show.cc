// meshtrain config show and schema: the config after merging, overriding and filling in defaults;
// the JSON Schema of all configs, for editors.
#include "base/text.h"
#include "cli.h"

namespace meshtrain {

int run_config_show(const Arguments& arguments) {
  out_stream().write(show_config(load_options(arguments, false), arguments.origin));
  return 0;
}

int run_schema() {
  const std::string schema = json_schema();
  out_stream().write(ends_with(schema, "\n") ? schema : schema + "\n");
  return 0;
}

}  // namespace meshtrain
