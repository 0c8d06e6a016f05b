// How much a subcommand shows, where, and in which form.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "base/streams.h"
#include "record/console.h"

namespace meshtrain {

// --progress, --log-format, -q, --color: of subcommands that run steps.
struct OutputFlags {
  std::string progress = "auto", log_format = "keras";
  bool quiet = false;
  int verbose = 0;

  void add_to(CLI::App& app);
  // -v: of subcommands that train.
  void add_verbose(CLI::App& app);

  // --progress as a `run.verbose`, where it is given.
  std::optional<Verbosity> verbosity() const;
  // `configured`: run.verbose.
  ConsoleOptions console(Verbosity configured = {}) const;
  bool is_json() const { return log_format == "json"; }
};

void add_color_flag(CLI::App& app);
// --format, one of these words.
void add_format_flag(CLI::App& app, std::string& format,
                     const std::vector<std::string>& words = {"text", "json"});
void add_quiet_flag(CLI::App& app, bool& quiet, const char* meaning);

// Checks of what a flag is given. The help has it as the type of the flag already.
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator number_between(double least, double most);

void show_warnings(const Diagnostics& warnings, bool quiet = false);
// W502, where there is one: results that are NaN or infinite, in words.
void warn_of_nonfinite(const std::vector<std::string>& results, bool quiet);
// Writes a text to stderr, unless `quiet`.
std::function<void(std::string_view)> show_unless(bool quiet);
// For a search over meshes: writes to stderr how far it is, where it takes more than some seconds.
std::function<void(size_t done, size_t all)> show_meshes();
// Throws a ConfigError of the command line that no place in a file belongs to.
[[noreturn]] void refuse(const char* code, const std::string& message, const std::string& help);
// Refuses (E140) a text that a table cannot show in one line. `what`: "a tag".
void check_line(const char* what, const std::string& text);

}  // namespace meshtrain
