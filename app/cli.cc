#include "cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "config/schema.h"
#include "engine/engine.h"
#include "record/run_dir.h"

namespace meshtrain {

const char* const kVersion = MESHTRAIN_VERSION;

namespace {

// What a key of the config begins is that key. Else `lr=0.1.yaml` may be a file, and `runs/lr=0.1`
// can be nothing else; `distribution.layout_maps.d1/kernel=...` is a key that is misspelt.
bool is_override(const std::string& word) {
  const size_t equals = word.find('=');
  if (starts_with(word, "~") || equals == std::string::npos) {
    return starts_with(word, "~");
  }
  const size_t end = word[equals == 0 ? 0 : equals - 1] == '+' ? equals - 1 : equals;
  const std::string key = word.substr(0, std::min(end, word.find('[')));
  const bool is_path = key.find('/') != std::string::npos &&
                       !is_known_key(key.substr(0, key.find('.'))) &&
                       word.find_first_of("\"'") >= equals;
  std::error_code error;
  return is_known_key(key) || (!is_path && !std::filesystem::exists(word, error));
}

// A file's place may hold what is no file: a run, a key whose value became the next word, or the
// word after --resume, which takes its own with `=` alone.
void check_is_config(const std::vector<std::string>& files, size_t i, bool resumes) {
  const std::string& word = files[i];
  if (is_run_dir(word)) {
    throw ConfigError("E140", {}, fmt::format("`{}` is a run, no config", word))
        .help(fmt::format("`meshtrain resume {}` goes on with it", word))
        .help(fmt::format("its config: {}/config.resolved.yaml", word));
  }
  std::error_code error;
  if (!ends_with(word, ".yaml") && !ends_with(word, ".yml") && is_known_key(word) &&
      !std::filesystem::exists(word, error)) {
    throw ConfigError("E140", {}, fmt::format("`{}` is a key and has no value", word))
        .help(fmt::format("write {}={}", word, i + 1 < files.size() ? files[i + 1] : "VALUE"));
  }
  if (resumes && (word == "auto" || word == "latest" || word == "best") &&
      !std::filesystem::exists(word, error)) {
    throw ConfigError("E140", {}, fmt::format("`{}` is no config", word))
        .help(fmt::format("write --resume={}", word));
  }
}

}  // namespace

LoadOptions load_options(const Arguments& a, bool require_data) {
  LoadOptions options = override_options(a);
  options.require_data = require_data;
  if (options.files.empty()) {
    throw ConfigError("E140", {}, "no config file given, only overrides");
  }
  for (size_t i = 0; i < options.files.size(); ++i) {
    check_is_config(options.files, i, !a.resume.empty());
  }
  return options;
}

LoadOptions override_options(const Arguments& a) {
  LoadOptions options;
  options.profile = a.profile;
  for (const std::string& word : a.words) {
    (is_override(word) ? options.overrides : options.files).push_back(word);
  }
  options.overrides.insert(options.overrides.end(), a.sets.begin(), a.sets.end());
  const char* environment = std::getenv("MESHTRAIN_DEVICES");
  const bool from_environment = a.devices.empty() && environment && *environment;
  if (!a.devices.empty() && environment && *environment && a.devices != environment) {
    options.overruled =
        fmt::format("`--devices {}` counts, not MESHTRAIN_DEVICES={}", a.devices, environment);
  }
  const std::tuple<std::string, const char*, const char*> flags[] = {
      {a.mesh, "distribution.device_mesh.shape", "--mesh"},
      {from_environment ? environment : a.devices, "distribution.device_mesh.devices",
       from_environment ? "MESHTRAIN_DEVICES" : "--devices"},
      {a.batch_size, "fit.batch_size", "--batch-size"},
      {a.epochs, "fit.epochs", "--epochs"},
      {a.seed, "seed", "--seed"},
      {a.name, "name", "--name"},
      {a.limit_steps, "fit.limit_steps", "--limit-steps"},
      {a.evaluate_steps, "evaluate.steps", "--limit-steps"},
      {a.hardware, "plan.hardware", "--hardware"},
      {a.max_time, "run.max_time", "--max-time"}};
  for (const auto& [value, key, flag] : flags) {
    if (!value.empty()) {
      options.flags.emplace_back(key, value);
      options.flag_names.emplace_back(flag);
    }
  }
  return options;
}

EngineOptions engine_options(const Arguments& arguments) {
  return {.num_workers = arguments.num_workers,
          .dump_ir = arguments.dump_ir,
          .use_cuda_graph = !arguments.no_cuda_graph,
          .processes = arguments.processes};
}

std::optional<Verbosity> progress_verbosity(const Arguments& a) {
  return a.progress == "bar"    ? std::optional(Verbosity::kBar)
         : a.progress == "line" ? std::optional(Verbosity::kLine)
         : a.progress == "none" ? std::optional(Verbosity::kSilent)
                                : std::nullopt;
}

ConsoleOptions console_options(const Arguments& a, const Config& config) {
  ConsoleOptions options = console_options(a);
  options.verbosity = progress_verbosity(a).value_or(config.run.verbose.value);
  return options;
}

ConsoleOptions console_options(const Arguments& a) {
  ConsoleOptions options;
  options.quiet = a.quiet;
  options.format = a.log_format == "json"    ? LogFormat::kJson
                   : a.log_format == "plain" ? LogFormat::kPlain
                                             : LogFormat::kKeras;
  options.stdout_is_terminal = out_stream().is_terminal();
  options.stderr_is_terminal = err_stream().is_terminal();
  options.color = use_color(a.color, err_stream());
  options.now = seconds_now;
  options.out = [](std::string_view text) { out_stream().write(text); };
  options.err = [](std::string_view text) { err_stream().write(text); };
  return options;
}

bool use_color(const std::string& flag, const TextStream& stream) {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (flag != "auto") {
    return flag == "always";
  }
  if (set("NO_COLOR")) {
    return false;
  }
  const char* force = std::getenv("CLICOLOR_FORCE");
  if (force && *force != '\0' && std::string_view(force) != "0") {
    return true;
  }
  const char* terminal = std::getenv("TERM");
  return stream.is_terminal() && terminal && std::string_view(terminal) != "dumb";
}

void show_warnings(const Diagnostics& warnings, const Arguments& a) {
  if (!a.quiet) {
    err_stream().write(warnings.render(use_color(a.color, err_stream())));
  }
}

void refuse(const char* code, const std::string& message, const std::string& help) {
  throw ConfigError(code, {}, message).help(help);
}

void refuse_profile(const Arguments& a, const std::string& run) {
  if (!a.profile.empty()) {
    throw ConfigError(
        "E140", {},
        fmt::format("`--profile {}`: the config of `{}` has no profiles, what was chosen of "
                    "them is in it",
                    a.profile, run))
        .help("write the profile's values as KEY=VALUE");
  }
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace meshtrain
