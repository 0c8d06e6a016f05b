// meshtrain version: what this binary is made of.
#include <fmt/format.h>

#include "cli.h"

namespace meshtrain {

void add_version(Command command) {
  CLI::App& verb = *command.app.add_subcommand("version", "Version and how the binary was built");
  verb.callback([command] {
    command.action = [] {
      out_stream().write(fmt::format("meshtrain {}\ncompiler {} {}\nbuild {}\ndevices cpu\n",
                                     kVersion, MESHTRAIN_COMPILER, __VERSION__,
                                     MESHTRAIN_BUILD_TYPE));
      return 0;
    };
  });
}

}  // namespace meshtrain
