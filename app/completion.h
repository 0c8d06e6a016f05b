// How a command line may be continued: for the completion of shells.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace meshtrain {

// The words that the last of `words` may become; all of them stand after the program's name. A word
// that ends with `.`, `=` or `/` has more to follow. Empty where nothing is known better than names
// of files. Reads the config and lists the runs that the words before it lead to.
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace meshtrain
