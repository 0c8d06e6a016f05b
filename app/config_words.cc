#include "config_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "config/schema.h"

namespace meshtrain {
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

// Brackets that are open at the end of a text.
int64_t open_brackets(const std::string& text) {
  const auto count = [&](const char* brackets) {
    return std::count_if(text.begin(), text.end(),
                         [&](char c) { return c == brackets[0] || c == brackets[1]; });
  };
  return count("{[") - count("}]");
}

// A shell splits at spaces: `fit.epochs: 3` and `callbacks+={EarlyStopping: {patience: 2}}` without
// quotes are several words.
void check_split_words(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (ends_with(word, ":") && is_known_key(word.substr(0, word.size() - 1))) {
      const std::string key = word.substr(0, word.size() - 1);
      throw ConfigError("E140", {}, fmt::format("`{}` sets a key as in a file", word))
          .help(fmt::format("write {}={}", key, i + 1 < words.size() ? words[i + 1] : "VALUE"));
    }
    std::string whole = word;
    for (size_t j = i + 1; is_override(word) && j < words.size() && open_brackets(whole) > 0; ++j) {
      whole += " " + words[j];
    }
    if (whole != word) {
      throw ConfigError("E140", {}, fmt::format("the shell split `{}` at its spaces", whole))
          .help(fmt::format("put it in single quotes: '{}'", whole));
    }
  }
}

}  // namespace

void ConfigWords::add_to(CLI::App& app, Steps steps) {
  add_named_to(app, steps, "CONFIG", "Config files, merged left to right (- is standard input)");
}

void ConfigWords::add_source_to(CLI::App& app, Steps steps) {
  add_named_to(app, steps, "RUN|CONFIG", "A run (runs/NAME/latest), or config files with weights");
}

void ConfigWords::add_named_to(CLI::App& app, Steps steps, const char* name,
                               const std::string& meaning) {
  app.add_option(name, words, meaning + ", and overrides: key.path=value, ~key, list+=item")
      ->option_text("[KEY=VALUE...]")
      ->required();
  add_flags(app, steps);
}

void ConfigWords::add_flags(CLI::App& app, Steps steps) {
  app.add_option("--set", sets_, "The same as a bare KEY=VALUE")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--profile", profile, "A named block of overrides in the file")->type_name("NAME");
  add_key_flag(app, "--mesh", "4x2|data=4,model=2", "distribution.device_mesh.shape",
               "Shape of the mesh");
  add_key_flag(app, "--devices", "cpu:8|gpu:0-7|gpu:0x8|64xH100|auto",
               "distribution.device_mesh.devices", "Devices of the mesh");
  add_key_flag(app, "--batch-size", "N", "fit.batch_size", "Global batch size");
  if (steps == Steps::kFit) {
    add_key_flag(app, "--epochs", "N", "fit.epochs", "Number of the last epoch");
  }
  add_key_flag(app, "--seed", "N", "seed", "Seed of every random number");
  add_key_flag(app, "--name", "NAME", "name", "Name of the run");
  if (steps == Steps::kFit) {
    add_key_flag(app, "--limit-steps", "N", "fit.limit_steps",
                 "At most N batches per epoch, for smoke runs");
  } else if (steps == Steps::kEvaluate) {
    add_key_flag(app, "--limit-steps", "N", "evaluate.steps", "At most N batches, for smoke runs");
  }
}

CLI::Option* ConfigWords::add_flag(CLI::App& app, const char* flag, const char* key,
                                   const std::string& meaning) {
  KeyFlag& added = flags_.emplace_back(KeyFlag{flag, key, ""});
  return app.add_option(flag, added.value, meaning);
}

void ConfigWords::add_key_flag(CLI::App& app, const char* flag, const char* type, const char* key,
                               const char* meaning) {
  add_flag(app, flag, key, fmt::format("{} [key: {}]", meaning, key))
      ->type_name(type)
      ->group("Config keys");
}

std::string ConfigWords::value_of(const std::string& flag) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [&](const KeyFlag& entry) { return entry.name == flag; });
  return found == flags_.end() ? "" : found->value;
}

LoadOptions ConfigWords::overrides() const {
  check_split_words(words);
  LoadOptions options;
  options.profile = profile;
  for (const std::string& word : words) {
    (is_override(word) ? options.overrides : options.files).push_back(word);
  }
  options.overrides.insert(options.overrides.end(), sets_.begin(), sets_.end());
  const char* environment = std::getenv("MESHTRAIN_DEVICES");
  for (KeyFlag flag : flags_) {
    if (flag.name == "--devices" && environment && *environment) {
      if (flag.value.empty()) {
        flag.name = "MESHTRAIN_DEVICES";
        flag.value = environment;
      } else if (flag.value != environment) {
        options.overruled =
            fmt::format("`--devices {}` counts, not MESHTRAIN_DEVICES={}", flag.value, environment);
      }
    }
    if (!flag.value.empty()) {
      options.flags.emplace_back(flag.key, flag.value);
      options.flag_names.push_back(flag.name);
    }
  }
  return options;
}

LoadOptions ConfigWords::load(bool require_data, bool resumes) const {
  LoadOptions options = overrides();
  options.require_data = require_data;
  check_config_files(options.files, resumes);
  return options;
}

ModelSource ConfigWords::source(const std::string& weights, bool require_data) const {
  ModelSource source = model_source(overrides(), weights);
  if (source.run.empty()) {
    source.load = load(require_data);
    source.load.weights = weights;
  }
  source.load.require_data = require_data;
  return source;
}

}  // namespace meshtrain
