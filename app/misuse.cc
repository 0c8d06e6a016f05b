#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "base/streams.h"
#include "base/text.h"
#include "config/schema.h"
#include "help.h"

namespace meshtrain {
namespace {

// Whether `word` is an option of `chosen`, alone or with a value: -q, --seed=3.
bool is_option_of(const CLI::App& chosen, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::vector<const CLI::Option*> options = chosen.get_options();
  return std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) {
    const std::vector<std::string> names = all_names(*option);
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

// What is wrong with the values that the parser found, or "". It forgets the `=` of `--name=` and
// takes the next word, whatever that is.
std::string wrong_value(const CLI::App& chosen, const std::vector<std::string>& command_line) {
  for (const std::string& word : command_line) {
    if (word == "--") {
      break;
    }
    if (starts_with(word, "--") && word.find('=') == word.size() - 1 &&
        is_option_of(chosen, word)) {
      return fmt::format("`{}` has no value", word.substr(0, word.size() - 1));
    }
  }
  for (const CLI::Option* option : chosen.get_options()) {
    const bool is_flag = option->get_type_size() == 0 || option->get_items_expected_min() == 0;
    if (is_flag || option->get_positional()) {
      continue;
    }
    for (const std::string& value : option->results()) {
      // An empty prompt begins with the start token.
      const bool may_be_empty = option->get_lnames().front() == "prompt";
      if ((value.empty() && !may_be_empty) ||
          (starts_with(value, "-") && is_option_of(chosen, value))) {
        return fmt::format("`--{}` has no value", option->get_lnames().front());
      }
      if (starts_with(value, "=") && !option->get_snames().empty()) {
        const std::string name = "-" + option->get_snames().front();
        return fmt::format("write `{0} {1}`, not `{0}={1}`", name,
                           value.size() > 1 ? value.substr(1) : option->get_type_name());
      }
    }
  }
  return "";
}

int show_wrong(const CLI::App& chosen, const std::string& message) {
  Diagnostics diagnostics;
  diagnostics.error("E140", {}, message).help(full_name(chosen) + " --help");
  err_stream().write(diagnostics.render());
  return static_cast<int>(ExitCode::kConfig);
}

// The sampler that other programs have an option for.
std::string sampler_meant_by(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name == "--top-k"                                      ? "top_k=40"
         : name == "--top-p"                                    ? "top_p=0.9"
         : name == "--greedy"                                   ? "greedy"
         : starts_with(name, "--beam") || name == "--num-beams" ? "beam=4"
                                                                : "";
}

// What leads on from a word that is neither subcommand nor flag, as a command line or a word of it;
// "" for what has no likely meaning.
std::string meant_by(const std::string& word, const CLI::App& app, const CLI::App& chosen) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "=VALUE" : word.substr(equals);
  if (!starts_with(word, "-")) {
    const bool is_config = ends_with(word, ".yaml") || ends_with(word, ".yml");
    return &chosen != &app  ? ""
           : is_config      ? "write `meshtrain train " + word + "`"
           : word == "fit"  ? "did you mean `train`?"  // of Keras' model
           : word == "test" ? "did you mean `evaluate`?"
                            : "";
  }
  if (is_option_of(chosen, word)) {  // before the subcommand
    return fmt::format("write `{} {}`", full_name(chosen), word);
  }
  if (starts_with(word, "-=") && is_option_of(chosen, "--resume")) {
    return fmt::format("write `--resume{}`", word.substr(1));
  }
  if (const std::string sampler = sampler_meant_by(name);
      !sampler.empty() && is_option_of(chosen, "--sampler")) {
    return fmt::format("write `--sampler {}`", sampler);
  }
  const bool takes_keys = is_option_of(chosen, "--set") && starts_with(word, "--");
  if (takes_keys && name.find('.') != std::string::npos && is_known_key(name.substr(2))) {
    return fmt::format("write `{}{}`", name.substr(2), value);
  }
  const bool is_rate = name == "--lr" || name == "--learning-rate" || name == "--learning_rate";
  return takes_keys && is_rate ? "write `compile.optimizer.learning_rate" + value + "`" : "";
}

// The parser's own words, made ours.
std::string message_of(const CLI::ParseError& error) {
  const std::string text = error.what();
  if (const size_t most = text.find(": At Most 1 required but received ");
      most != std::string::npos) {
    return fmt::format("`{}` is given more than once", text.substr(0, most));
  }
  const size_t missing = text.find(": 1 required ");
  if (missing != std::string::npos && ends_with(text, " missing")) {
    const size_t type = missing + std::string_view(": 1 required ").size();
    return fmt::format("{} needs a value: {}", text.substr(0, missing),
                       text.substr(type, text.size() - type - std::string_view(" missing").size()));
  }
  const size_t twice = text.find(": At Most 1 required but received ");
  if (twice != std::string::npos) {
    return fmt::format("`{}` is given more than once; write it once", text.substr(0, twice));
  }
  return text;
}

}  // namespace

bool has_wrong_subcommand(const CLI::App& app) {
  return innermost(app).get_require_subcommand_min() > 0 && !app.remaining(true).empty();
}

std::optional<int> show_wrong_value(const CLI::App& app,
                                    const std::vector<std::string>& command_line) {
  const CLI::App& chosen = innermost(app);
  const std::string message = wrong_value(chosen, command_line);
  return message.empty() ? std::nullopt : std::optional(show_wrong(chosen, message));
}

int show_misuse(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App& chosen = innermost(app);
  const bool none_given = chosen.get_require_subcommand_min() > 0;
  const std::vector<std::string> extras = app.remaining(true);
  std::string message = message_of(error);
  if (!extras.empty() && (none_given || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    const std::string& word = extras.front();
    const bool is_option = starts_with(word, "-");
    message = is_option && is_option_of(chosen, word)
                  ? fmt::format("`{}` belongs after the subcommand", word)
              : is_option  ? fmt::format("unknown option `{}`", word)
              : none_given ? fmt::format("unknown subcommand `{}`", word)
                           : fmt::format("`{}` is a word too many", word);
    const auto nearest =
        nearest_name(word, is_option ? option_names(chosen) : subcommand_names(chosen));
    if (const std::string meant = meant_by(word, app, chosen); !meant.empty()) {
      message += "; " + meant;
    } else if (nearest) {
      message += fmt::format("; did you mean `{}`?", *nearest);
    }
  } else if (none_given) {
    message = &chosen == &app ? "no subcommand given"
                              : fmt::format("`{}` needs a subcommand: {}", chosen.get_name(),
                                            join(subcommand_names(chosen), " or "));
  }
  return show_wrong(chosen, message);
}

}  // namespace meshtrain
