#include "output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/host.h"
#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {

void OutputFlags::add_to(CLI::App& app) {
  app.add_option("--progress", progress,
                 "As Keras' verbose 1, 2 and 0; auto: a bar on a terminal, and lines")
      ->type_name("auto|bar|line|none")
      ->check(one_of({"auto", "bar", "line", "none"}))
      ->group("Output");
  app.add_option("--log-format", log_format,
                 "On stdout: Keras' lines, one line per epoch, or one JSON object per event")
      ->type_name("keras|plain|json")
      ->check(one_of({"keras", "plain", "json"}))
      ->group("Output");
  add_quiet_flag(app, quiet, "Only the final result and errors");
  add_color_flag(app);
}

void OutputFlags::add_verbose(CLI::App& app) {
  app.add_flag("-v,--verbose", verbose, "Show the plan before starting")->group("Output");
}

std::optional<Verbosity> OutputFlags::verbosity() const {
  return progress == "bar"    ? std::optional(Verbosity::kBar)
         : progress == "line" ? std::optional(Verbosity::kLine)
         : progress == "none" ? std::optional(Verbosity::kSilent)
                              : std::nullopt;
}

ConsoleOptions OutputFlags::console(Verbosity configured) const {
  ConsoleOptions options;
  options.verbosity = verbosity().value_or(configured);
  options.quiet = quiet;
  options.format = is_json()               ? LogFormat::kJson
                   : log_format == "plain" ? LogFormat::kPlain
                                           : LogFormat::kKeras;
  options.stdout_is_terminal = out_stream().is_terminal();
  options.stderr_is_terminal = err_stream().is_terminal();
  options.stdout_is_pipe = out_stream().is_pipe();
  options.pipe_is_empty = [] {
    int bytes = 0;
    return ioctl(STDOUT_FILENO, FIONREAD, &bytes) != 0 || bytes == 0;
  };
  options.color = err_stream().has_color();
  const char* terminal = std::getenv("TERM");
  options.has_escapes = terminal != nullptr && std::string_view(terminal) != "dumb";
  options.columns = [] { return err_stream().columns(); };
  options.now = steady_seconds;
  options.out = [](std::string_view text) { out_stream().write(text); };
  options.err = [](std::string_view text) { err_stream().write(text); };
  return options;
}

void add_color_flag(CLI::App& app) {
  app.add_option_function<std::string>("--color", set_color,
                                       "Colours; NO_COLOR and CLICOLOR_FORCE are respected")
      ->type_name("auto|always|never")
      ->check(one_of({"auto", "always", "never"}))
      ->group("Output");
}

void add_format_flag(CLI::App& app, std::string& format, const std::vector<std::string>& words) {
  app.add_option("--format", format, "Form of the output")
      ->type_name(join(words, "|"))
      ->check(one_of(words))
      ->group("Output");
}

void add_quiet_flag(CLI::App& app, bool& quiet, const char* meaning) {
  app.add_flag("-q,--quiet", quiet, meaning)->group("Output");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](const std::string& given) -> std::string {
        for (const std::string& word : words) {
          if (given == word) {
            return "";
          }
        }
        return fmt::format("must be {}, not `{}`", join(words, " or "), given);
      },
      "");
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [=](const std::string& given) -> std::string {
        const auto value = try_integer(given);
        return value && *value >= least && *value <= most
                   ? ""
                   : fmt::format("must be a whole number from {} to {}, not `{}`", least, most,
                                 given);
      },
      "");
}

CLI::Validator number_between(double least, double most) {
  return CLI::Validator(
      [=](const std::string& given) -> std::string {
        const auto value = try_number(given);
        if (value && *value >= least && *value <= most) {
          return "";
        }
        return most < std::numeric_limits<double>::max()
                   ? fmt::format("must be a number from {} to {}, not `{}`", format_shortest(least),
                                 format_shortest(most), given)
                   : fmt::format("must be a number, at least {}; not `{}`", format_shortest(least),
                                 given);
      },
      "");
}

void show_warnings(const Diagnostics& warnings, bool quiet) {
  show_unless(quiet)(warnings.render(err_stream().has_color()));
}

void warn_of_nonfinite(const std::vector<std::string>& results, bool quiet) {
  if (results.empty()) {
    return;
  }
  Diagnostics warnings;
  warnings.warning("W502", {}, join(results, ", "))
      .help(
          "weights of a run that failed, or numbers in the data that are too large, give such "
          "results");
  show_warnings(warnings, quiet);
}

std::function<void(std::string_view)> show_unless(bool quiet) {
  return [quiet](std::string_view text) {
    if (!quiet) {
      err_stream().write(text);
    }
  };
}

void check_line(const char* what, const std::string& text) {
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    refuse("E140", fmt::format("{} has a line break or another control character", what),
           "write it in one line");
  }
}

std::function<void(size_t done, size_t all)> show_meshes() {
  constexpr double kPause = 3;  // seconds
  const double begin = steady_seconds();
  return [begin, last = begin](size_t done, size_t all) mutable {
    const double now = steady_seconds();
    if (now - last >= kPause) {
      last = now;
      err_stream().write(fmt::format("{} of {} meshes, {:.0f} s\n", done, all, now - begin));
    }
  };
}

void refuse(const char* code, const std::string& message, const std::string& help) {
  throw ConfigError(code, {}, message).help(help);
}

}  // namespace meshtrain
