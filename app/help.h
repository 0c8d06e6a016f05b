// What the command line says of itself (help.cc), and about one that it cannot understand
// (misuse.cc).
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace meshtrain {

// Shows "-r, --resume[=auto|latest]" and "CONFIG... [KEY=VALUE...]", which the parser's own help
// writes otherwise. To be set before subcommands are added, which take it over.
std::shared_ptr<CLI::FormatterBase> help_formatter();
// Exit codes and variables of the environment.
std::string help_footer();

// The subcommand that was given, with the one that it leads to: `data fetch`.
const CLI::App& innermost(const CLI::App& app);
std::string full_name(const CLI::App& app);  // "meshtrain data fetch"
std::vector<std::string> subcommand_names(const CLI::App& app);
std::vector<std::string> option_names(const CLI::App& app);     // "--run-dir" of all
std::vector<std::string> all_names(const CLI::Option& option);  // "-o" and "--run-dir"

// Whether there is something else where a subcommand should be: `meshtrain explian --help`.
bool has_wrong_subcommand(const CLI::App& app);
// Says on stderr which flag has no value (E140): `--mesh ''`, `--name=`, `--name --seed=3`. Returns
// the exit code, nothing when all have one. For a command line that was parsed, well or not.
std::optional<int> show_wrong_value(const CLI::App& app,
                                    const std::vector<std::string>& command_line);
// Says on stderr what is wrong (E140), with the nearest right word. Returns the exit code.
int show_misuse(const CLI::ParseError& error, const CLI::App& app);

}  // namespace meshtrain
