// What the command line says of itself.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
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

}  // namespace meshtrain
