// meshtrain: the command line. Parses, runs one verb, and turns what it throws into messages and
// exit codes; the only place that catches.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>

#include "base/columns.h"
#include "base/environment_names.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli.h"
#include "exit_report.h"
#include "help.h"
#include "start_processes.h"
#include "verbs.h"

namespace meshtrain {
namespace {

constexpr const char* kFooter = R"(
Exit codes:
  0 finished          1 unexpected failure        2 bad command line or config
  3 bad data          4 mesh or memory            5 diverged (NaN or infinity in the loss)
  6 bad weights       7 a check failed            8 another rank or host was lost
  74 could not write  75 stopped, resumable       130, 143 interrupted, terminated
Environment:
{}`meshtrain VERB --help` lists the flags of a verb.)";

// "`A`, `B`"
std::string quoted_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    out += (out.empty() ? "`" : ", `") + printable(name) + "`";
  }
  return out;
}

std::string footer() {
  std::vector<std::vector<std::string>> rows;
  for (const EnvironmentName& entry : environment_names()) {
    if (entry.reader == EnvironmentName::Reader::kUser) {
      rows.push_back({"  " + std::string(entry.name), std::string(entry.text)});
    }
  }
  return fmt::format(kFooter, aligned_columns(rows));
}

// One warning for all of them: the first process speaks, and only where it was not started by one
// that did.
void warn_of_environment(const Arguments& arguments) {
  const std::vector<std::string> unknown = unknown_environment_names(environ);
  if (unknown.empty() || std::getenv("MESHTRAIN_RESTART") != nullptr) {
    return;
  }
  std::vector<std::string> known;
  for (const EnvironmentName& entry : environment_names()) {
    if (entry.reader == EnvironmentName::Reader::kUser) {
      known.emplace_back(entry.name);
    }
  }
  Diagnostics diagnostics;
  Diagnostic& warning = diagnostics.warning(
      "W141", {}, fmt::format("nothing reads {} of the environment", quoted_names(unknown)));
  for (const std::string& name : unknown) {
    if (const auto nearest = nearest_name(name, known)) {
      warning.help(fmt::format("`{}`: did you mean `{}`?", printable(name), *nearest));
    }
  }
  show_warnings(diagnostics, arguments);
}

// The exit code once all is said: what nobody could read is a failure, unless it is also elsewhere.
int code_after_output(int code, bool has_record) {
  if (out_stream().error_number() == 0) {
    return code;
  }
  const std::string reason =
      fmt::format("cannot write to stdout: {}", std::strerror(out_stream().error_number()));
  if (has_record) {
    err_stream().write(fmt::format("warning: {}\n", reason));
    return code;
  }
  if (code == 0) {
    err_stream().write(error_text(ExitCode::kWriteFailed, reason));
  }
  return code == 0 ? static_cast<int>(ExitCode::kWriteFailed) : code;
}

int run(int argc, char** argv) {
  prepare_streams();
  mute_nonzero_ranks();
  CLI::App app("Sharded neural network training from one YAML file", "meshtrain");
  Arguments arguments;
  arguments.command_line.assign(argv, argv + argc);
  Action action;
  bool started = false;
  app.formatter(help_formatter());
  app.require_subcommand(1);
  app.footer(footer());
  app.set_version_flag("--version", fmt::format("meshtrain {}", kVersion));
  add_verbs({app, arguments, action, started});
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& asked) {
    if (has_wrong_verb(app)) {
      return show_misuse(asked, app);
    }
    out_stream().write(app.help() + "\n");  // of the verb, if there is one
    return code_after_output(0, false);
  } catch (const CLI::Success& success) {  // --version
    out_stream().write(fmt::format("{}\n", success.what()));
    return code_after_output(0, false);
  } catch (const CLI::ParseError& error) {
    const std::optional<int> code = show_wrong_value(app, arguments.command_line);
    return code ? *code : show_misuse(error, app);
  }
  if (const std::optional<int> code = show_wrong_value(app, arguments.command_line)) {
    return *code;
  }
  arguments.given_words = given_words(app);
  const std::string verb = app.get_subcommands().front()->get_name();
  warn_of_environment(arguments);
  ExitReport report;
  try {
    if (start_processes(arguments, verb)) {
      report.exit_code = action();
    }
  } catch (...) {
    report = exit_report_of(arguments, started);
  }
  const int code = end_processes(arguments.processes, report);
  // The run's folder has it, the predictions are a file; an evaluation has nothing but its line.
  return code_after_output(code, started && verb != "evaluate");
}

}  // namespace
}  // namespace meshtrain

int main(int argc, char** argv) {
  return meshtrain::run(argc, argv);
}
