// What the command line takes: the verbs, and which flag sets which of the Arguments.
#pragma once

#include <functional>

#include "cli.h"

namespace CLI {
class App;
}

namespace meshtrain {

// What the chosen verb does; set while parsing, run after it.
using Action = std::function<int()>;

struct CommandLine {
  CLI::App& app;
  Arguments& arguments;
  Action& action;
  bool& started;
};

void add_verbs(CommandLine to);

}  // namespace meshtrain
