// meshtrain: the command line. Parses, runs one verb, and turns what it throws into messages and
// exit codes; the only place that catches.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "base/text.h"
#include "cli.h"
#include "ending.h"
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
Environment: MESHTRAIN_DATA, MESHTRAIN_CACHE, MESHTRAIN_DEVICES, MESHTRAIN_OFFLINE,
  NO_COLOR, CLICOLOR_FORCE; between processes MESHTRAIN_NET_INTERFACE (a network interface),
  MESHTRAIN_JOIN_TIMEOUT, MESHTRAIN_HEARTBEAT_TIMEOUT, MESHTRAIN_COLLECTIVE_TIMEOUT (seconds).
`meshtrain VERB --help` lists the flags of a verb.)";

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

// A misuse of the command line, with the nearest right word.
int show_misuse(const CLI::ParseError& error, CLI::App& app) {
  CLI::App* verb = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
  std::string message = error.what();
  std::vector<std::string> known = option_names(*verb);
  const std::vector<std::string> extras = app.remaining(true);
  const bool no_verb = verb == &app;
  if (!extras.empty() && (no_verb || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    const std::string& word = extras.front();
    const bool is_option = starts_with(word, "-");
    if (no_verb && !is_option) {
      known.clear();
      for (const CLI::App* candidate : app.get_subcommands({})) {
        known.push_back(candidate->get_name());
      }
    }
    message = fmt::format("unknown {} `{}`", is_option ? "option" : "verb", word);
    if (const auto nearest = nearest_name(word, known)) {
      message += fmt::format("; did you mean `{}`?", *nearest);
    }
  } else if (no_verb) {
    message = "no verb given";
  }
  Diagnostics diagnostics;
  diagnostics.error("E140", {}, message)
      .help(verb == &app ? "meshtrain --help"
                         : fmt::format("meshtrain {} --help", verb->get_name()));
  err_stream().write(diagnostics.render());
  return static_cast<int>(ExitCode::kConfig);
}

int run(int argc, char** argv) {
  prepare_streams();
  let_first_speak();
  CLI::App app("Sharded neural network training from one YAML file", "meshtrain");
  Arguments arguments;
  arguments.command_line.assign(argv, argv + argc);
  Action action;
  bool started = false;
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("--version", fmt::format("meshtrain {}", kVersion));
  add_verbs({app, arguments, action, started});
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    out_stream().write(app.help() + "\n");  // of the verb, if there is one
    return 0;
  } catch (const CLI::Success& success) {  // --version
    out_stream().write(fmt::format("{}\n", success.what()));
    return 0;
  } catch (const CLI::ParseError& error) {
    return show_misuse(error, app);
  }
  arguments.given_words = given_words(app);
  Ending ending;
  try {
    if (start_processes(arguments, app.get_subcommands().front()->get_name())) {
      ending.exit_code = action();
    }
  } catch (...) {
    ending = ending_of_exception(arguments, started);
  }
  const int code = end_processes(arguments.processes, ending);
  if (out_stream().error_number() == 0) {
    return code;
  }
  const std::string reason =
      fmt::format("cannot write to stdout: {}", std::strerror(out_stream().error_number()));
  if (started) {  // the run directory has the record
    err_stream().write(fmt::format("warning: {}\n", reason));
    return code;
  }
  if (code == 0) {
    err_stream().write(error_text(ExitCode::kWriteFailed, reason));
  }
  return code == 0 ? static_cast<int>(ExitCode::kWriteFailed) : code;
}

}  // namespace
}  // namespace meshtrain

int main(int argc, char** argv) {
  return meshtrain::run(argc, argv);
}
