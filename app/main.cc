// meshtrain: the command line. Parses, runs one subcommand, and turns what it throws into messages
// and exit codes; the only place that catches.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>

#include "base/environment_names.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/streams.h"
#include "base/text.h"
#include "base/utf8.h"
#include "engine/run_mpirun.h"
#include "engine/signals.h"
#include "help.h"
#include "output.h"
#include "subcommand.h"
#include "train/learned_file.h"
#include "train/start_processes.h"

namespace meshtrain {
namespace {

// "`A`, `B`"
std::string quoted_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    out += (out.empty() ? "`" : ", `") + printable(name) + "`";
  }
  return out;
}

// One warning for all of them: the first process speaks, and only where it was not started by one
// that did.
void warn_of_environment(const CLI::App& chosen) {
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
  const CLI::Option* quiet = chosen.get_option_no_throw("--quiet");
  show_warnings(diagnostics, quiet != nullptr && quiet->count() > 0);
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
  // A check that failed says so on stdout: nobody could read what it found.
  const bool is_lost = code == 0 || code == static_cast<int>(ExitCode::kCheckFailed);
  if (is_lost) {
    err_stream().write(error_text(ExitCode::kWriteFailed, reason));
  }
  return is_lost ? static_cast<int>(ExitCode::kWriteFailed) : code;
}

// What all processes of a run are asked, where they do the work of the subcommand together.
std::optional<SharedCommand> shared_command(const Subcommand& subcommand,
                                            const Invocation& invocation) {
  std::optional<SharedCommand> shared = subcommand.shared();
  if (shared) {
    shared->name = subcommand.name;
    shared->version = MESHTRAIN_VERSION;
    shared->words = invocation.given_words;
  }
  return shared;
}

// Configs, logs and events are UTF-8, and names of files are written into them.
void refuse_other_bytes(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    for (size_t i = 0, length = 0; i < word.size(); i += length) {
      length = utf8_length(word, i);
      if (length == 0) {
        refuse("E140", fmt::format("`{}` is not UTF-8", printable(word)),
               "another name, or a terminal whose character set is UTF-8");
      }
    }
  }
}

// The last line of a run on stdout, for one that ended before its first.
void show_early_end(const LoadOptions& load, const ExitReport& report) {
  nlohmann::ordered_json event = {{"event", "end"},
                                  {"exit_code", report.exit_code},
                                  {"message", report.message},
                                  {"overrides", given_overrides(load)}};
  out_stream().write(json_text(event, -1, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

int run_subcommand(const Subcommand& subcommand, Invocation& invocation) {
  ExitReport report;
  try {
    refuse_other_bytes(invocation.command_line);
    if (subcommand.starts_processes) {
      check_is_alone(subcommand.name);
    }
    if (start_processes(shared_command(subcommand, invocation), invocation.processes,
                        invocation.num_workers)) {
      report.exit_code = subcommand.run(invocation);
    }
  } catch (...) {
    report = current_exit_report(invocation.started);
    report.exit_code = exit_code_in_launch(report.exit_code);
    if (const std::optional<LoadOptions> load = subcommand.json_run();
        load && !invocation.started) {
      show_early_end(*load, report);
    }
  }
  const int code = end_processes(invocation.processes, report);
  // Else the run's folder has it, or the predictions are a file.
  return code_after_output(code, invocation.started && !invocation.result_is_on_stdout);
}

int run(int argc, char** argv) {
  prepare_streams();
  if (is_launched()) {
    catch_run_signals({});  // before anything that takes time: `launch` waits for it
  }
  set_data_sizes_reader(sizes_of_training_data);
  mute_nonzero_ranks();
  CLI::App app("Sharded neural network training from one YAML file", "meshtrain");
  Invocation invocation{.command_line = {argv, argv + argc}};
  app.formatter(help_formatter());
  app.require_subcommand(1);
  app.footer(help_footer());
  app.set_version_flag("--version", "meshtrain " MESHTRAIN_VERSION);
  Subcommands subcommands(app);
  add_subcommands(subcommands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& asked) {
    if (has_wrong_subcommand(app)) {
      return show_misuse(asked, app);
    }
    out_stream().write(app.help() + "\n");  // of the subcommand, if there is one
    return code_after_output(0, false);
  } catch (const CLI::Success& success) {  // --version
    out_stream().write(fmt::format("{}\n", success.what()));
    return code_after_output(0, false);
  } catch (const CLI::ParseError& error) {
    const std::optional<int> code = show_wrong_value(app, invocation.command_line);
    return code ? *code : show_misuse(error, app);
  }
  if (const std::optional<int> code = show_wrong_value(app, invocation.command_line)) {
    return *code;
  }
  invocation.given_words = given_words(app);
  warn_of_environment(innermost(app));
  return run_subcommand(subcommands.chosen(), invocation);
}

}  // namespace
}  // namespace meshtrain

int main(int argc, char** argv) {
  return meshtrain::run(argc, argv);
}
