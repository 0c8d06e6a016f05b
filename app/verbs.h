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

// Arguments::given_words: what was parsed, with each flag and its value as one word. `launch`
// becomes `train`.
std::vector<std::string> given_words(const CLI::App& app);

}  // namespace meshtrain
