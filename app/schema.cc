// meshtrain schema: the JSON Schema of configs, for editors.
#include "base/text.h"
#include "cli.h"

namespace meshtrain {

void add_schema(Command command) {
  CLI::App& verb = *command.app.add_subcommand("schema", "JSON Schema of the config, for editors");
  verb.callback([command] {
    command.action = [] {
      const std::string schema = json_schema();
      out_stream().write(ends_with(schema, "\n") ? schema : schema + "\n");
      return 0;
    };
  });
}

}  // namespace meshtrain
