// meshtrain schema: the JSON Schema of all configs, for editors.
#include "base/text.h"
#include "config/load.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct SchemaOptions {};

int run_schema(const SchemaOptions&, Invocation&) {
  const std::string schema = json_schema();
  out_stream().write(ends_with(schema, "\n") ? schema : schema + "\n");
  return 0;
}

}  // namespace

void add_schema(Subcommands& to) {
  to.add<SchemaOptions>("schema", "JSON Schema of the config, for editors", run_schema);
}

}  // namespace meshtrain
