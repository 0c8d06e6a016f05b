// What the command line says of itself: its help, what a flag takes, and misuse.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace meshtrain {

// Shows "-r, --resume[=auto|latest]", "CONFIG... [KEY=VALUE...]" and "verb" for what the parser's
// own help writes otherwise. To be set before verbs are added, which take it over.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// Checks of what a flag is given. The help has it as the type of the flag already.
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator number_between(double least, double most);

// Whether there is something else where a verb should be: `meshtrain explian --help`.
bool has_wrong_verb(const CLI::App& app);
// Says on stderr which flag has no value (E140): `--mesh ''`, `--name=`, `--name --seed=3`. Returns
// the exit code, nothing when all have one. For a command line that was parsed, well or not.
std::optional<int> show_wrong_value(const CLI::App& app,
                                    const std::vector<std::string>& command_line);
// Says on stderr what is wrong (E140), with the nearest right word. Returns the exit code.
int show_misuse(const CLI::ParseError& error, const CLI::App& app);

}  // namespace meshtrain
