// Command lines that cannot be understood.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace meshtrain {

// Whether there is something else where a subcommand should be: `meshtrain explian --help`.
bool has_wrong_subcommand(const CLI::App& app);
// Says on stderr which flag has no value (E140): `--mesh ''`, `--name=`, `--name --seed=3`. Returns
// the exit code, nothing when all have one. For a command line that was parsed, well or not.
std::optional<int> show_wrong_value(const CLI::App& app,
                                    const std::vector<std::string>& command_line);
// Says on stderr what is wrong (E140), with the nearest right word. Returns the exit code.
int show_misuse(const CLI::ParseError& error, const CLI::App& app);

}  // namespace meshtrain
